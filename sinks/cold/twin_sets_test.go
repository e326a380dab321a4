package cold_test

import (
	"fmt"
	"slices"

	"github.com/tidemark-io/tidemark/pipeline"
	"github.com/tidemark-io/tidemark/sinks/cold"
	"github.com/tidemark-io/tidemark/sinks/run"
)

// members are what the model has of one of twinSets, of an id (0: of all), in
// order.
func (v *twinView) members(set int, id uint64) (keys []run.Key) {
	of := twinMember(set, 0, pipeline.Member{})
	return slices.DeleteFunc(v.model.under(of.Kind, id), func(k run.Key) bool { return k.Counter != of.Counter })
}

// compareSets reads all members in each way there is. Those that are forgotten may
// still be there.
func (w *twinStore) compareSets(v twinView, check func(what string, err error, got, want []string)) {
	since := int64(w.applied[v.shard]) - twinKeep
	for set, spec := range twinSets {
		column := pipeline.Column(twinSetsFirst + set)
		remembers := func(second int64) bool { return spec.Keep == 0 || second >= since }
		say := func(id uint64, m pipeline.Member, second int64) string { return fmt.Sprint(id, m, second) }
		list := func(keys []run.Key) (all []string) {
			for _, k := range keys {
				if second := v.model[k][0]; remembers(second) {
					all = append(all, say(k.A, pipeline.Member{A: k.B, B: k.C}, second))
				}
			}
			return all
		}
		var got []string
		var err error
		for part := (cold.Part{Most: 1 + w.r.IntN(6)}); err == nil && !part.Done; {
			err = v.view.WalkMembers(column, &part, func(id uint64, m pipeline.Member, second int64) {
				if remembers(second) {
					got = append(got, say(id, m, second))
				}
			})
		}
		check("WalkMembers", err, got, list(v.members(set, 0)))
		for id := uint64(1); id <= twinUsers; id++ {
			after, most := pipeline.Member{A: w.r.Uint64N(twinUsers)}, 1+w.r.IntN(5)
			if spec.Wide() && after.A > 0 {
				after.B = w.r.Uint64N(3)
			}
			got = nil
			err := v.view.Members(column, id, after, func(m pipeline.Member, second int64) bool {
				if remembers(second) {
					got = append(got, say(id, m, second))
				}
				return len(got) < most
			})
			from := twinMember(set, id, after)
			want := list(slices.DeleteFunc(v.members(set, id), func(k run.Key) bool { return k.Compare(&from) <= 0 }))
			check("Members", err, got, want[:min(len(want), most)])

			m := pipeline.Member{A: w.id()}
			if spec.Wide() {
				m.B = w.r.Uint64N(3)
			}
			second, there, err := v.view.Member(column, id, m)
			is, holds := v.model[twinMember(set, id, m)]
			if holds = holds && remembers(is[0]); !holds {
				is[0] = 0
			}
			if there = there && remembers(second); !there {
				second = 0
			}
			check("Member", err, []string{fmt.Sprint(there, second)}, []string{fmt.Sprint(holds, is[0])})
		}
	}
}
