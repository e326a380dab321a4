package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/internal/config"
	"github.com/tidemark-io/tidemark/internal/job"
	"github.com/tidemark-io/tidemark/pipeline"
	generations "github.com/tidemark-io/tidemark/pipeline/generation"
)

// RebuildPlan is what a rebuild changes, reads, needs and deletes. It is what an
// operator confirms.
type RebuildPlan struct {
	Serving  generations.Number `json:"serving"`
	Changes  []string           `json:"changes"`         // config.Changes: what is counted differently
	Drops    []string           `json:"drops"`           // config.Drops: of what serves, what is counted no longer
	Keep     string             `json:"keep"`            // for how long what serves now is kept after the switch
	Messages uint64             `json:"messages,string"` // of EVENTS, which are read
	Position uint64             `json:"position,string"` // the newest of EVENTS
	Nodes    []RebuildDisk      `json:"nodes"`           // that hold counts
	// Deletes is the generation that is kept now and is deleted first, so that there is no
	// way back to it; 0: none. Loses are config.Drops of it: what it alone counts.
	Deletes generations.Number `json:"deletes"`
	Loses   []string           `json:"loses"`
	// Confirm is a digest of what serves, what is to be counted, and what is lost.
	Confirm string `json:"confirm"`
}

// RebuildDisk is what a rebuild needs on the disk of a node. Its counts are not known
// before they are there: it needs what the serving generation takes, or so.
type RebuildDisk struct {
	Node  string `json:"node"`
	Needs uint64 `json:"needs"`          // bytes
	Free  uint64 `json:"free,omitempty"` // bytes; 0: not known
}

// Refuses says why a rebuild does not begin as it is asked for; nil: it does. What is
// dropped or lost needs a word of the operator about just that: a request that was made
// blindly, or of a system as it was before, is refused.
func (p *RebuildPlan) Refuses(ask *RebuildAsk) error {
	switch {
	case ask.DropKept != 0 && ask.DropKept != p.Deletes:
		return job.Bad("no rebuild was begun: generation %d is not the one that is kept (%d)", ask.DropKept, p.Deletes)
	case len(p.Loses) > 0 && ask.DropKept != p.Deletes:
		return job.Bad("no rebuild was begun: it deletes generation %d, which is kept and alone counts %s. 'tidemark rebuild --back' returns to it; '--drop-kept %d' gives it up",
			p.Deletes, listed(p.Loses), p.Deletes)
	case ask.Confirm != "" && ask.Confirm != p.Confirm:
		return job.Bad("no rebuild was begun: it would do something else than what was shown and confirmed: ask again")
	case ask.Confirm == "" && len(p.Drops) > 0:
		return job.Bad("no rebuild was begun: it drops %s, and nobody has confirmed that: 'tidemark rebuild' shows it and asks", listed(p.Drops))
	}
	return nil
}

// listedMax bounds how many of a list an error names.
const listedMax = 5

func listed(words []string) string {
	if more := len(words) - listedMax; more > 0 {
		return fmt.Sprintf("%s, and %d more", strings.Join(words[:listedMax], ", "), more)
	}
	return strings.Join(words, ", ")
}

// planRebuild says what a rebuild would do, and refuses one against which something
// speaks. next is what it counts by.
func (n *Node) planRebuild(ctx context.Context, ask *RebuildAsk) (p *RebuildPlan, next json.RawMessage, err error) {
	serving, set := n.Serving(), n.rebuilds.set()
	now, err := serving.Config.Counting()
	if err != nil {
		return nil, nil, err
	}
	if next = ask.Counting; len(next) == 0 || string(next) == "null" {
		next = now
	}
	if set.Building != 0 {
		return nil, nil, generations.ErrUnderWay
	}
	by, err := n.config.CountingBy(next)
	if err != nil {
		return nil, nil, err
	}
	p = &RebuildPlan{Serving: serving.Number, Deletes: set.Kept, Keep: config.FormatDuration(max(n.config.Rebuild.Keep, keepMin.Round(time.Second)))}
	if p.Changes, err = config.Changes(serving.Config, by); err != nil {
		return nil, nil, err
	}
	p.Drops = config.Drops(serving.Config, by)
	if kept, err := n.config.CountingBy(set.All[set.Kept].Counting); set.Kept != 0 && err == nil {
		p.Loses = config.Drops(kept, serving.Config)
	}
	if p.Messages, err = serving.LogEnd(ctx); err != nil {
		return nil, nil, err
	}
	if p.Messages > 0 {
		p.Position = uint64(pipeline.EndOf(p.Messages))
	}
	if err := n.Serving().History().Lacks(ctx); err != nil {
		return nil, nil, err
	}
	if p.Nodes, err = n.prepare(ctx, next); err != nil {
		return nil, nil, err
	}
	p.Confirm, err = p.digest(now, next)
	for _, list := range []*[]string{&p.Changes, &p.Drops, &p.Loses} {
		*list = append([]string{}, *list...) // an empty list, not null, as JSON
	}
	return p, next, err
}

// digest names what is confirmed. It does not change while events come.
func (p *RebuildPlan) digest(now, next json.RawMessage) (string, error) {
	text, err := json.Marshal([]any{p.Serving, p.Deletes, now, next, p.Drops, p.Loses})
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:16]), nil
}

// planned is the job that says what a rebuild would do.
func (n *Node) planned(ctx context.Context, request []byte) (any, error) {
	var ask RebuildAsk
	if err := json.Unmarshal(request, &ask); err != nil {
		return nil, job.Bad("the request is not of this form: %v", err)
	}
	p, _, err := n.planRebuild(ctx, &ask)
	return p, err
}

// byNode sorts what nodes said.
func byNode(nodes []RebuildDisk) []RebuildDisk {
	slices.SortFunc(nodes, func(a, b RebuildDisk) int { return strings.Compare(a.Node, b.Node) })
	return nodes
}
