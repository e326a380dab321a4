package main

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/query/client"
)

type unreadCommand struct {
	Users    []id         `arg:"" name:"user" help:"The users."`
	Channels channelNames `placeholder:"NAME,…" help:"These channels alone, dots or notices."`
	remote
}

func (unreadCommand) Help() string {
	return `Shows what users have not looked at yet: posts of those they follow (feed), the 1:1
counters, notice channels, and which dots are lit (*).

EXAMPLE

    tidemark unread 7
    tidemark unread 7 8 --json
    tidemark unread 7 --channels system,games`
}

// channelNames are names with commas between.
type channelNames []string

// UnmarshalText is called by kong for each flag. Of an empty text kong's own
// lists make none at all, which would ask for all channels.
func (n *channelNames) UnmarshalText(text []byte) error {
	for name := range strings.SplitSeq(string(text), ",") {
		if name == "" {
			return errors.New("a channel's name is empty")
		}
		*n = append(*n, name)
	}
	return nil
}

func (u *unreadCommand) Run(t *terminal) error {
	return u.ask(func(ctx context.Context, c *client.Client) error {
		if u.JSON {
			return asUsage(u.printReply(ctx, c, t, "unread", struct {
				Users    []string `json:"users"`
				Channels []string `json:"channels,omitempty"`
			}{decimals(u.Users), u.Channels}))
		}
		request := client.UnreadRequest{Channels: u.Channels}
		for _, user := range u.Users {
			request.Users = append(request.Users, uint64(user))
		}
		reply, err := c.UnreadMany(ctx, request)
		if err != nil {
			return asUsage(err)
		}
		if err := printUnread(t, reply); err != nil {
			return err
		}
		return wholeUsers(reply.Degraded, reply.Missing, reply.Stale)
	})
}

func printUnread(t *terminal, reply client.UnreadReply) error {
	var counts, channels, dots []string
	for _, user := range reply.Users {
		if !user.Missing {
			counts, channels, dots = sortedKeys(user.Counts), sortedKeys(user.Channels), sortedKeys(user.Dots)
			break
		}
	}
	out := table{}
	out.add(slices.Concat([]string{"user", "feed"}, counts, channels, dots)...)
	for _, user := range reply.Users {
		line := []string{strconv.FormatUint(user.User, 10)}
		if user.Missing {
			out.add(append(line, "?")...)
			continue
		}
		line = append(line, strconv.FormatUint(user.Feed, 10))
		for _, name := range counts {
			line = append(line, strconv.FormatInt(user.Counts[name], 10))
		}
		for _, name := range channels {
			line = append(line, strconv.FormatUint(user.Channels[name], 10))
		}
		for _, name := range dots {
			lit := "-"
			if user.Dots[name] {
				lit = "*"
			}
			line = append(line, lit)
		}
		out.add(line...)
	}
	return out.print(t.out)
}

// wholeUsers is an error when something could not be read.
func wholeUsers(degraded bool, missing []uint64, stale time.Duration) error {
	if !degraded {
		return nil
	}
	users := make([]string, 0, len(missing))
	for _, user := range missing {
		users = append(users, strconv.FormatUint(user, 10))
	}
	return wholeOr("users", users, stale)
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for key := range m {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

func decimals(ids []id) []string {
	out := make([]string, 0, len(ids))
	for _, i := range ids {
		out = append(out, strconv.FormatUint(uint64(i), 10))
	}
	return out
}
