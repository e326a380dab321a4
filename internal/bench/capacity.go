package main

import (
	"context"
	"fmt"
	"math"
)

// shape is what one kind of process pays for a request, in microseconds, or what
// holders read or write for it, in bytes: an amount for each request, for each item (an
// id, a followee), for each holder asked, and more for each item that is not with the
// holder that a request of one item would ask. Of a poll these are the followees whom
// the user's holder sends to the answering node, and that on to the others.
type shape struct{ fixed, item, part, apart float64 }

// at is what a request for items costs among so many holders.
func (s shape) at(items, holders float64) float64 {
	return s.fixed + s.item*items + s.part*parts(items, holders) + s.apart*apart(items, holders)
}

// parts is how many of the holders a request asks: those with an item at least.
func parts(items, holders float64) float64 { return holders * (1 - math.Pow(1-1/holders, items)) }

// apart is how many items are not with one holder.
func apart(items, holders float64) float64 { return items * (1 - 1/holders) }

// The points that shapes are fitted to: so many items, so many holders.
const (
	fewItems, manyItems     = followed, followees
	fewHolders, manyHolders = 1, 4
)

// seen is what was measured at these four points.
type seen struct{ fewOne, manyOne, fewMore, manyMore float64 }

// shape is the one that comes closest, by the squares of what it is wrong by, in parts
// of what was seen. What holders pay is for being asked: nothing is fixed there.
func (y seen) shape(fixed bool) shape {
	var a [4][5]float64 // normal equations, what is seen in the last column
	for _, p := range [...]struct{ seen, items, holders float64 }{
		{y.fewOne, fewItems, fewHolders},
		{y.manyOne, manyItems, fewHolders},
		{y.fewMore, fewItems, manyHolders},
		{y.manyMore, manyItems, manyHolders},
	} {
		weight := 1 / max(p.seen, 1e-9)
		x := [5]float64{0, p.items * weight, parts(p.items, p.holders) * weight, apart(p.items, p.holders) * weight, p.seen * weight}
		if fixed {
			x[0] = weight
		}
		for i := range a {
			for j := range a[i] {
				a[i][j] += x[i] * x[j]
			}
		}
	}
	if !fixed {
		a[0][0] = 1
	}
	for i := range a { // Gauss and Jordan; none of the sums of squares is 0
		for j := range a {
			if factor := a[j][i] / a[i][i]; j != i {
				for k := range a[j] {
					a[j][k] -= factor * a[i][k]
				}
			}
		}
	}
	return shape{a[0][4] / a[0][0], a[1][4] / a[1][1], a[2][4] / a[2][2], a[3][4] / a[3][3]}
}

// events is what an event costs: the router, each holder whatever it holds, all
// holders together for what they hold, and the NATS server.
type events struct{ route, read, hold, store float64 }

func (e events) holders(holders float64) float64 { return e.read*holders + e.hold }

// point is what was measured with so many holders.
type point struct {
	holders           int
	getFew, getMany   cost
	pollFew, pollMany cost
	event             cost
	deltas            float64
}

// model is all of it.
type model struct {
	get, poll map[string]shape // by the kind of process
	event     events
}

// kinds of processes, and of bytes, that a model has.
var spenders = []struct {
	name, unit string
	fixed      bool // something is paid for a request, whatever it asks
	of         func(cost) float64
}{
	{"the answering node", "µs", true, func(c cost) float64 { return c.thin }},
	{"all holders", "µs", false, func(c cost) float64 { return c.holders }},
	{"the NATS server", "µs", true, func(c cost) float64 { return c.server }},
	{"read by holders", "bytes", false, func(c cost) float64 { return c.read }},
	{"written by holders", "bytes", false, func(c cost) float64 { return c.written }},
}

func fit(one, more point) model {
	m := model{get: map[string]shape{}, poll: map[string]shape{}}
	for _, s := range spenders {
		m.get[s.name] = seen{s.of(one.getFew), s.of(one.getMany), s.of(more.getFew), s.of(more.getMany)}.shape(s.fixed)
		m.poll[s.name] = seen{s.of(one.pollFew), s.of(one.pollMany), s.of(more.pollFew), s.of(more.pollMany)}.shape(s.fixed)
	}
	e := &m.event
	e.route = (one.event.router + more.event.router) / 2
	e.read = (one.event.reader + more.event.reader) / 2
	e.hold = (one.event.holders+more.event.holders)/2 - e.read*(fewHolders+manyHolders)/2
	e.store = (one.event.server + more.event.server) / 2
	return m
}

// addModel adds the costs that docs/capacity.md calculates with. For the numbers of holders
// that the model was not fitted to, it adds what the model says beside what was measured.
func (b *bench) addModel(points []point) {
	last := points[len(points)-1]
	m := fit(points[0], last)
	m.list(&b.table, last)
	for _, p := range points[1 : len(points)-1] {
		m.check(&b.table, p)
	}
	b.table.note("capacity: fitted to what was measured with %d and %d holders, for %d and %d ids or followees; the lines with a model beside them are of other numbers of holders. %d callers.",
		fewHolders, manyHolders, fewItems, manyItems, callers)
}

// point measures what the processes that there are pay.
func (f *fleet) point(ctx context.Context) (p point, err error) {
	p.holders = len(f.holders)
	rest, err := f.rest(ctx)
	if err != nil {
		return p, err
	}
	for _, ask := range []struct {
		to *cost
		do func() (cost, error)
	}{
		{&p.getFew, func() (cost, error) { return f.gets(ctx, rest, callers, fewItems) }},
		{&p.getMany, func() (cost, error) { return f.gets(ctx, rest, callers, manyItems) }},
		{&p.pollMany, func() (cost, error) { return f.unreads(ctx, rest, callers, allPollers[0]) }},
		{&p.pollFew, func() (cost, error) { return f.unreads(ctx, rest, callers, allPollers[1]) }},
	} {
		if *ask.to, err = ask.do(); err != nil {
			return p, err
		}
	}
	p.event, p.deltas, err = f.apply(ctx, rest)
	f.say("nodes: %d holders: %s", p.holders, p.getFew.text("get of 20"))
	f.say("nodes: %d holders: %s", p.holders, p.getMany.text("get of 500"))
	f.say("nodes: %d holders: %s", p.holders, p.pollFew.text("poll of 20"))
	f.say("nodes: %d holders: %s", p.holders, p.pollMany.text("poll of 500"))
	f.say("nodes: %d holders: %s", p.holders, p.event.text("event"))
	return p, err
}

// list adds the amounts to the table.
func (m model) list(t *table, last point) {
	for _, s := range spenders {
		get, poll := m.get[s.name], m.poll[s.name]
		for _, a := range []struct {
			what   string
			amount float64
		}{
			{"get, %s: a get", get.fixed},
			{"get, %s: an id", get.item},
			{"get, %s: a holder asked", get.part},
			{"get, %s: an id elsewhere", get.apart},
			{"poll, %s: a poll", poll.fixed},
			{"poll, %s: a followee", poll.item},
			{"poll, %s: a holder asked", poll.part},
			{"poll, %s: a followee elsewhere", poll.apart},
		} {
			t.add(line{what: fmt.Sprintf(a.what, s.name), unit: s.unit, ours: sample{a.amount}, signed: true})
		}
	}
	for _, a := range []struct {
		what, unit string
		amount     float64
	}{
		{"event, the router", "µs", m.event.route},
		{"event, each holder whatever it holds", "µs", m.event.read},
		{"event, the holders of all shards together", "µs", m.event.hold},
		{"event, the NATS server", "µs", m.event.store},
		{"event, in DELTAS", "bytes", last.deltas},
	} {
		t.add(line{what: a.what, unit: a.unit, ours: sample{a.amount}, signed: true})
	}
}

// check adds what was measured at another point, beside the model.
func (m model) check(t *table, p point) {
	n := float64(p.holders)
	all := func(shapes map[string]shape, items float64) (sum float64) {
		for _, s := range spenders {
			if s.unit == "µs" {
				sum += shapes[s.name].at(items, n)
			}
		}
		return sum
	}
	for _, c := range []struct {
		what   string
		is     float64
		should float64
	}{
		{"get of 20", p.getFew.all + p.getFew.server, all(m.get, fewItems)},
		{"get of 500", p.getMany.all + p.getMany.server, all(m.get, manyItems)},
		{"poll of one who follows 20", p.pollFew.all + p.pollFew.server, all(m.poll, fewItems)},
		{"poll of one who follows 500", p.pollMany.all + p.pollMany.server, all(m.poll, manyItems)},
		{"event", p.event.all + p.event.server, m.event.route + m.event.holders(n) + m.event.store},
	} {
		t.add(line{what: fmt.Sprintf("%s, %d holders, server included", c.what, p.holders), unit: "µs", ours: sample{c.is}, beside: "the model", theirs: sample{c.should}})
	}
}
