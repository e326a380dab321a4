package spread

import (
	"testing"

	"github.com/tidemark-io/tidemark/query"
)

// Memory that is used again does not hold on to a giant's list, also when the lot
// that came after it was shorter.
func TestProfilesLetGo(t *testing.T) {
	work := &profilesWork{out: query.Profiles{Rest: make([]query.CountAsk, 3)}}
	for i, n := range []int{profilesKeep, profilesKeep + 1, 1} {
		work.out.Rest[i].Followees = make([]query.Followee, 0, n)
	}
	work.out.Rest = work.out.Rest[:1]
	putProfiles(work)
	for i, kept := range []bool{true, false, true} {
		if is := work.out.Rest[:3][i].Followees != nil; is != kept {
			t.Errorf("the list of user %d is kept: %v, want %v", i, is, kept)
		}
	}
}
