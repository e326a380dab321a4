package generation_test

import (
	"errors"
	"testing"

	"github.com/tidemark-io/tidemark/pipeline/generation"
)

// "A superseded generation never serves by itself": a node that stands alone, and finds no
// record or one that it does not follow, does not serve what it holds where a DELTAS shows
// that it does not know enough.
func TestJudgeAlone(t *testing.T) {
	all := stages(t)
	first, second := all["none"].Owner(1), all["building"].Owner(2)
	restored, err := all["none"].Only()
	if err != nil {
		t.Fatal(err)
	}
	amid, err := all["building"].Only()
	if err != nil {
		t.Fatal(err)
	}
	forged := all["none"]
	forged.Epoch, forged.Serving, forged.Newest = 9, 1000, 1000
	forged.All = map[generation.Number]generation.Generation{1000: {Counting: b}}
	for _, c := range []struct {
		name         string
		own, there   generation.Set
		slot0, slot1 generation.Owner
		waits        bool
	}{
		{"the bucket is lost", all["none"], generation.Set{}, first, generation.Owner{}, false},
		{"the bucket and DELTAS are lost", all["none"], generation.Set{}, generation.Owner{}, generation.Owner{}, false},
		{"the bucket is lost amid a rebuild", all["building"], generation.Set{}, first, second, false},
		{"away since before the rebuild, which is not dropped yet", restored, generation.Set{}, first, second, true},
		{"away since before the rebuild, and the first is dropped", restored, generation.Set{}, generation.Owner{}, second, true},
		{"restored from amid the rebuild, and the first is dropped and its windows are left", amid, generation.Set{}, first, second, true},
		{"restored from amid the rebuild, of which nothing is left", amid, generation.Set{}, first, generation.Owner{}, false},
		{"away amid the rebuild, and the first is dropped", all["alike"], generation.Set{}, generation.Owner{}, second, true},
		{"the same, and the record is older", all["alike"], all["none"], generation.Owner{}, second, true},
		{"away since before the rebuild, and the record is forged", restored, forged, first, second, true},
		{"the record is forged", all["building"], forged, first, second, false},
	} {
		f := &generation.Found{Own: c.own, There: c.there, First: all["none"], Deltas: [generation.Slots]generation.Owner{c.slot0, c.slot1}}
		switch acts, why := f.Judge(); {
		case !c.waits && !acts.Equal(c.own):
			t.Errorf("%s: it does not go on: %v", c.name, why)
		case c.waits && (acts.Epoch != 0 || !errors.Is(why, generation.ErrWaits)):
			t.Errorf("%s: generation %d serves, why: %v", c.name, acts.Serving, why)
		}
		f.Told = all["dropped"]
		if acts, why := f.Judge(); c.waits && !acts.Equal(f.Told) {
			t.Errorf("%s, and another node knows more: epoch %d, why: %v", c.name, acts.Epoch, why)
		}
	}
}
