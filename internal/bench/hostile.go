package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

const (
	callIDs  = 10 // posts in a small get
	followed = 20 // of each person, each with one post
	// persons are users of the hostile measurement's own: those of community
	// go on publishing, which would change the answers.
	firstPerson     = 1 << 41
	firstPersonPost = 3_000_000_000_000_000
)

// hostile is what small requests take while a client asks as much as a limit
// allows, does not read, or publishes at full speed. Beside it: what they take
// when all is quiet. All of these take turns.
//
// The load is a process of its own at a lower priority than the node and the
// one who asks: it takes all that they leave of the processors, and no more.
func (b *bench) hostile(ctx context.Context) error {
	b.say("hostile: to %s post rows and %s users", number(float64(b.size.asked)), number(float64(b.size.persons)))
	p, c, err := b.launch(ctx, "")
	if err != nil {
		return err
	}
	defer p.discard()
	defer c.Close()
	if err := loadRows(ctx, c, 0, b.size.asked); err != nil {
		return err
	}
	if err := loadPersons(ctx, c, b.size.persons); err != nil {
		return err
	}
	if _, err := b.call(ctx, p, warmUp); err != nil { // what is asked first is not in memory yet
		return err
	}
	lines := make([]line, len(loads))
	for i, l := range loads {
		lines[i] = line{what: "small requests, p99 beside " + l.what, unit: "ms", beside: "p99 when all is quiet", target: ratioAtMost(2)}
		if l.name == control {
			lines[i].target = target{}
		}
	}
	for range b.size.rounds {
		if err := p.settle(ctx); err != nil {
			return err
		}
		quiet, err := b.call(ctx, p, b.size.calling)
		if err != nil {
			return err
		}
		for i, l := range loads {
			loud, err := b.callBeside(ctx, p, l)
			if err != nil {
				return fmt.Errorf("%s: %w", l.name, err)
			}
			lines[i].ours = append(lines[i].ours, loud.quantile(0.99))
			lines[i].theirs = append(lines[i].theirs, quiet.quantile(0.99))
			b.say("hostile: %s: p50 %s ms, p99 %s ms, quiet %s and %s", l.name, number(loud.median()), last(lines[i].ours),
				number(quiet.median()), last(lines[i].theirs))
		}
		at, err := c.Publish(ctx, client.Message(1, 2)) // what comes before it is counted when it is: the next round is quiet
		if err != nil {
			return err
		}
		if err := applied(ctx, c, at); err != nil {
			return err
		}
	}
	for _, l := range lines {
		b.table.add(l)
	}
	nice := "at a lower priority (nice 10)"
	if niceCommand() == nil {
		nice = "at the same priority, for want of nice(1)"
	}
	b.table.note("small requests: %d a second, gets of %d posts and unread of one user. The load is a process %s; it, the node and who asks share the processors.",
		b.size.calls, callIDs, nice)
	return nil
}

// loadPersons makes people who follow each other, each with a post.
func loadPersons(ctx context.Context, c *client.Client, persons int) error {
	return feedLines(ctx, c, func(add func([]byte) error) error {
		var buffer []byte
		event := func(e client.Event) (err error) {
			if buffer, err = e.AppendJSON(buffer[:0]); err != nil {
				return err
			}
			return add(buffer)
		}
		step := persons / (2 * followed)
		for i := range persons {
			for j := range followed {
				if err := event(client.Follow(person(i), person((i+1+j*step)%persons))); err != nil {
					return err
				}
			}
		}
		for i := range persons { // what came before a follow would be read
			if err := event(client.Post(person(i), firstPersonPost+uint64(i))); err != nil {
				return err
			}
		}
		for i := range persons { // the hub follows everybody, and everybody follows it
			if err := errors.Join(event(client.Follow(hub, person(i))), event(client.Follow(person(i), hub))); err != nil {
				return err
			}
		}
		return nil
	})
}

// hub is a user with as much to list as a request may ask for.
const hub = firstPerson - 1

func person(i int) uint64 { return firstPerson + uint64(i) }

// callBeside calls while a load is on.
func (b *bench) callBeside(ctx context.Context, p *program, l load) (sample, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	command := append(niceCommand(), self, loadArgument, l.name, p.url, fmt.Sprint(b.size.asked), fmt.Sprint(b.size.persons))
	log := filepath.Join(b.dir, "load")
	if err := os.RemoveAll(log); err != nil { // of the load before
		return nil, err
	}
	child, err := b.children.start(log, nil, command[0], command[1:]...)
	if err != nil {
		return nil, err
	}
	defer func() { child.end(syscall.SIGKILL) }()
	err = p.until(ctx, "wait for the load", 10*time.Millisecond, func() error {
		said, err := os.ReadFile(log)
		if err != nil || child.ended() != nil || strings.Contains(string(said), l.says) { // one that ended is reported below
			return err
		}
		return fmt.Errorf("it has not said %q", l.says)
	})
	if err != nil {
		return nil, err
	}
	time.Sleep(warmUp / 4)
	s, err := b.call(ctx, p, b.size.calling)
	if ended := child.ended(); ended != nil {
		return nil, errors.Join(ended, err)
	}
	return s, err
}

// settle returns once the program has next to nothing to do: after much was
// published it writes and compacts for some seconds.
func (p *program) settle(ctx context.Context) error {
	every := p.b.size.calm / 2
	little := max(2*tick, every*3/50)
	before := p.busy()
	time.Sleep(every)
	return p.until(ctx, "wait for a program at rest", every, func() error {
		now := p.busy()
		spent := now - before
		if before = now; spent > little {
			return fmt.Errorf("%v of processor time in %v", spent, every)
		}
		return nil
	})
}

// niceCommand is what comes before a command that is to run at a lower
// priority; nil: that is not to be had here.
func niceCommand() []string {
	path, err := exec.LookPath("nice")
	if err != nil {
		return nil
	}
	return []string{path, "-n", "10"}
}

// call asks small questions at fixed times, whatever becomes of those before,
// and gives how long each took from when it was due, in milliseconds.
func (b *bench) call(ctx context.Context, p *program, during time.Duration) (took sample, err error) {
	c, err := p.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return pace(ctx, b.size.calls, during, func(ctx context.Context, i int, seed uint64) error {
		if i%2 == 1 {
			return b.callUnread(ctx, c, seed)
		}
		return b.callGet(ctx, c, seed)
	})
}

func (b *bench) callGet(ctx context.Context, c *client.Client, seed uint64) error {
	var at, ids [callIDs]uint64
	for i := range at {
		at[i] = (seed + uint64(i)*7919) % uint64(b.size.asked)
		ids[i] = postID(at[i])
	}
	reply, err := c.Get(ctx, client.GetRequest{Counter: "post", IDs: ids[:], Columns: columns})
	if err != nil {
		return err
	}
	for i, row := range reply.Rows {
		if want := countsOf(at[i]); !slices.Equal(row.Values, want[:]) {
			return fmt.Errorf("post %d has %v and the answer says %v", row.ID, want, row.Values)
		}
	}
	return nil
}

func (b *bench) callUnread(ctx context.Context, c *client.Client, seed uint64) error {
	user := person(int(seed % uint64(b.size.persons)))
	reply, err := c.Unread(ctx, user)
	if err != nil {
		return err
	}
	if feed := reply.Users[0].Feed; feed != followed {
		return fmt.Errorf("user %d has %d unread posts and the answer says %d", user, followed, feed)
	}
	return nil
}
