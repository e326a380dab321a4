package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tidemark-io/tidemark/operators"
	"github.com/tidemark-io/tidemark/pipeline"
)

// check holds every bound and what keys mean to each other. A fault is at the
// key that the file states; defaults are within their bounds.
func (d *decoder) check(c *Config) {
	d.checkBounds(c)
	d.checkNATS(&c.NATS)
	d.checkNodes(c)
	d.checkTogether(c)
	d.checkRebuild(c)
	d.checkRules(c)
	if c.Extends == ExtendsDefault {
		c.extendRules(Default())
	}
	d.checkSets(c)
	d.checkProgram(c)
}

const ageMax = 36500 * day

// checkDoors refuses a door for everybody on the network that nobody has said shall be one.
func (d *decoder) checkDoors(c *Config) {
	if c.API.Listen != "" {
		d.checkListen("api.listen", c.API.Listen)
	}
	for _, door := range []struct{ key, listen string }{{"api.listen", c.API.Listen}, {"http.listen", c.HTTP.Listen}} {
		if door.listen != "" && d.sound(door.key) && c.API.Tokens == "" && !Local(door.listen) {
			d.crossFault([]string{door.key, "api.tokens"}, "%s is %s, which others than this machine reach, and there is no api.tokens; "+
				"state a file with a token and a role a line, or api.tokens: %s, or listen on 127.0.0.1", door.key, door.listen, AuthOpen)
		}
	}
}

// Local says that only this machine reaches an address that is listened on.
func Local(listen string) bool {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return false
	}
	address, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && address.IsLoopback()
}

func (d *decoder) checkBounds(c *Config) {
	d.given("data_dir", c.DataDir)
	within(d, "shards", c.Shards, 1, 4096)

	within(d, "nats.replicas", c.NATS.Replicas, 1, 5)
	within(d, "nats.sync_interval", c.NATS.SyncInterval, 0, 10*time.Minute)
	within(d, "nats.max_payload", c.NATS.MaxPayload, 64*KiB, 64*MiB)
	within(d, "nats.streams.events.max_bytes", c.NATS.Streams.Events.MaxBytes, MiB, 1024*TiB)
	if c.NATS.Streams.Events.MaxAge != 0 {
		within(d, "nats.streams.events.max_age", c.NATS.Streams.Events.MaxAge, time.Second, ageMax)
	}
	if c.NATS.Streams.Events.Keep != 0 {
		within(d, "nats.streams.events.keep", c.NATS.Streams.Events.Keep, 2*time.Minute, ageMax)
	}
	within(d, "nats.streams.deltas.max_bytes", c.NATS.Streams.Deltas.MaxBytes, MiB, 1024*TiB)
	within(d, "nats.streams.deadletter.max_bytes", c.NATS.Streams.DeadLetter.MaxBytes, MiB, 1024*TiB)

	if c.HTTP.Listen != "" {
		d.checkListen("http.listen", c.HTTP.Listen)
	}
	d.checkHosts("http.hosts", c.HTTP.Hosts)
	d.checkDoors(c)

	within(d, "windows.events", c.Windows.Events, 1, 65536)
	within(d, "windows.bytes", c.Windows.Bytes, 32*KiB, 32*MiB)
	within(d, "windows.delay", c.Windows.Delay, 0, time.Second)

	within(d, "router.lanes", c.Router.Lanes, 0, 1024)
	within(d, "router.lease_renew", c.Router.LeaseRenew, 10*time.Millisecond, time.Minute)
	within(d, "router.lease_expiry", c.Router.LeaseExpiry, 30*time.Millisecond, time.Hour)

	within(d, "checkpoint.interval", c.Checkpoint.Interval, 10*time.Millisecond, time.Minute)
	within(d, "checkpoint.rows", c.Checkpoint.Rows, 1, rowsMax)

	within(d, "memory.budget", c.Memory.Budget, MiB, 64*1024*GiB)
	within(d, "badger.memtable", c.Badger.MemTable, 8*MiB, GiB)
	within(d, "badger.block_cache", c.Badger.BlockCache, 0, TiB)
	within(d, "badger.index_cache", c.Badger.IndexCache, 0, TiB)

	within(d, "limits.ids", c.Limits.IDs, 1, 100_000)
	within(d, "limits.requests", c.Limits.Requests, 1, 1_000_000)
	within(d, "limits.cold_reads", c.Limits.ColdReads, 1, 1024)
	within(d, "limits.timeout", c.Limits.Timeout, time.Millisecond, time.Hour)
	within(d, "limits.timeout_max", c.Limits.TimeoutMax, time.Millisecond, time.Hour)

	within(d, "limits.bodies", c.Limits.Bodies, MiB, 64*GiB)
	within(d, "limits.connections", c.Limits.Connections, 0, 1_000_000)
	within(d, "limits.channels", c.Limits.Channels, 1, 65_536)
	within(d, "limits.notices", c.Limits.Notices, 1, 10_000_000)

	d.checkAudit(&c.Audit)
	within(d, "slow.threshold", c.Slow.Threshold, 0, time.Hour)
	within(d, "slow.entries", c.Slow.Entries, 1, 1024)

	within(d, "explain.rate", c.Explain.Rate, 0, 10_000_000)
	within(d, "explain.disk", c.Explain.Disk, MiB, TiB)

	if err := CheckPlace(c.Backup.To); err != nil {
		d.fault(d.lines["backup.to"], "backup.to", "%v", err)
	}
	within(d, "backup.every", c.Backup.Every, time.Minute, 3650*day)
	within(d, "backup.keep", c.Backup.Keep, 1, 1_000_000)
	within(d, "ready.lag", c.Ready.Lag, 10*time.Millisecond, time.Hour)
	within(d, "freshness", c.Freshness, time.Second, pipeline.FreshnessMax)
	within(d, "feed.posts_per_author", c.Feed.PostsPerAuthor, 1, 65535)
	within(d, "feed.posts_kept", c.Feed.PostsKept, 0, 16*65535)
	within(d, "feed.retention", c.Feed.Retention, time.Millisecond, ageMax)
	within(d, "unread.retention", c.Unread.Retention, time.Second, ageMax)
	if c.Unread.Retention%time.Second != 0 && d.sound("unread.retention") {
		d.fault(d.lines["unread.retention"], "unread.retention", "%s is not a whole number of seconds; log time is measured in seconds", FormatDuration(c.Unread.Retention))
	}
	within(d, "inactive_after", c.InactiveAfter, time.Millisecond, ageMax)
	within(d, "node_expiry", c.NodeExpiry, time.Second, 3650*day)

	d.oneOf("extends", c.Extends, "", ExtendsDefault)
	d.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	d.oneOf("log.format", c.Log.Format, "text", "json")
}

// checkProgram holds what a window must have room for: no event is larger than one.
func (d *decoder) checkProgram(c *Config) {
	if len(d.faults) > 0 || c.Thin() {
		return
	}
	schema, err := c.Schema()
	if err == nil {
		_, err = c.Program(schema)
	}
	if err != nil {
		d.crossFault([]string{"windows.bytes", "shards", "counters", "rules"}, "%s", strings.TrimPrefix(err.Error(), "operators: "))
	}
}

// rowsMax bounds checkpoint.rows: what one shard may have to write out again at once.
const rowsMax = 1_000_000

func (d *decoder) checkNATS(n *NATS) {
	if n.URL != "" {
		d.checkURL("nats.url", n.URL)
	}
	if d.given("nats.listen", n.Listen) {
		d.checkListen("nats.listen", n.Listen)
	}
	if n.Credentials != "" && n.NKey != "" {
		d.crossFault([]string{"nats.credentials", "nats.nkey"}, "credentials and nkey are both given; allowed: one of them")
	}
	if n.TLS.Cert != "" && n.TLS.Key == "" {
		d.crossFault([]string{"nats.tls.cert"}, "cert is given without key; the two go together")
	}
	if n.TLS.Key != "" && n.TLS.Cert == "" {
		d.crossFault([]string{"nats.tls.key"}, "key is given without cert; the two go together")
	}
	if n.URL != "" {
		if n.Auth != "" {
			d.crossFault([]string{"nats.auth", "nats.url"}, "is for the embedded server, and nats.url names another; leave one of the two out")
		}
		return
	}
	if d.sound("nats.listen") && n.Auth == "" && !Local(n.Listen) {
		d.crossFault([]string{"nats.listen", "nats.auth"}, "nats.listen is %s, which others than this machine reach, and there is no nats.auth; "+
			"state a file with a key and a role a line, or nats.auth: %s, or listen on 127.0.0.1", n.Listen, AuthOpen)
	}
	// Ignoring these would leave an operator in the belief that they hold.
	for _, outside := range []struct{ key, value string }{
		{"nats.credentials", n.Credentials},
		{"nats.tls.ca", n.TLS.CA},
		{"nats.tls.cert", n.TLS.Cert},
		{"nats.tls.key", n.TLS.Key},
	} {
		if outside.value != "" {
			d.crossFault([]string{outside.key}, "is for an outside server, and nats.url is empty; state nats.url or leave this out")
		}
	}
	if n.Replicas > 1 && !n.Cluster.On() {
		d.crossFault([]string{"nats.replicas", "nats.url", "nats.cluster.listen"}, "%d replicas need a cluster, and both nats.url and nats.cluster.listen are empty; an embedded server on its own allows 1", n.Replicas)
	}
}

// checkTogether compares keys of different groups.
func (d *decoder) checkTogether(c *Config) {
	if c.Windows.Bytes > c.NATS.MaxPayload/2 {
		d.crossFault([]string{"windows.bytes", "nats.max_payload"},
			"windows.bytes is %s, nats.max_payload %s; allowed: windows.bytes up to half of it, %s",
			c.Windows.Bytes, c.NATS.MaxPayload, c.NATS.MaxPayload/2)
	}
	if c.Router.LeaseExpiry < 3*c.Router.LeaseRenew {
		d.crossFault([]string{"router.lease_expiry", "router.lease_renew"},
			"lease_expiry is %s, lease_renew %s; allowed: lease_expiry of 3 renewals or more, %s",
			FormatDuration(c.Router.LeaseExpiry), FormatDuration(c.Router.LeaseRenew), FormatDuration(3*c.Router.LeaseRenew))
	}
	if least := c.badgerBytes() + shardBytesMin; c.Memory.Budget < least && c.Memory.Budget >= MiB {
		d.crossFault([]string{"memory.budget", "badger.memtable", "badger.block_cache", "badger.index_cache"},
			"memory.budget is %s; allowed: %s or more, of which Badger's buffers and caches take %s and the state at least %s",
			c.Memory.Budget, least, c.badgerBytes(), Size(shardBytesMin))
	}
	if kept := c.Feed.PostsKept; kept > 0 && kept < c.Feed.PostsPerAuthor {
		d.crossFault([]string{"feed.posts_kept", "feed.posts_per_author"},
			"posts_kept is %d, posts_per_author %d; allowed: posts_per_author or more, or 0 for four times that", kept, c.Feed.PostsPerAuthor)
	}
	if c.NATS.Streams.Events.Keep > 0 && c.Backup.To == "" {
		d.crossFault([]string{"nats.streams.events.keep", "backup.to"}, "keep is %s, and backup.to is empty: events are trimmed only once a backup has what they counted; state backup.to, or leave keep out",
			FormatDuration(c.NATS.Streams.Events.Keep))
	}
	if n := len(c.Channels); n > c.Limits.Channels && c.Limits.Channels > 0 {
		d.crossFault([]string{"limits.channels", "channels"}, "limits.channels is %d, and %d are listed; allowed: as many as are listed, or more", c.Limits.Channels, n)
	}
	if c.Limits.Timeout > c.Limits.TimeoutMax {
		d.crossFault([]string{"limits.timeout", "limits.timeout_max"},
			"timeout is %s, timeout_max %s; allowed: timeout up to timeout_max",
			FormatDuration(c.Limits.Timeout), FormatDuration(c.Limits.TimeoutMax))
	}
	if c.NodeExpiry < 3*c.Checkpoint.Interval {
		d.crossFault([]string{"node_expiry", "checkpoint.interval"},
			"node_expiry is %s, checkpoint.interval %s; allowed: node_expiry of 3 intervals or more, %s",
			FormatDuration(c.NodeExpiry), FormatDuration(c.Checkpoint.Interval), FormatDuration(3*c.Checkpoint.Interval))
	}
	d.checkPorts(c)
}

// checkPorts refuses two listeners on one port.
func (d *decoder) checkPorts(c *Config) {
	type listener struct{ key, host, port string }
	var all []listener
	for _, l := range []struct{ key, listen string }{
		{"nats.listen", c.NATS.Listen}, {"nats.cluster.listen", c.NATS.Cluster.Listen}, {"http.listen", c.HTTP.Listen}, {"api.listen", c.API.Listen},
	} {
		host, port, err := net.SplitHostPort(l.listen)
		if host == "localhost" {
			host = "127.0.0.1"
		}
		if err != nil || port == "0" || c.NATS.URL != "" && strings.HasPrefix(l.key, "nats.") {
			continue
		}
		for _, other := range all {
			if other.port == port && (other.host == host || anywhere(host) || anywhere(other.host)) {
				d.crossFault([]string{l.key, other.key}, "%s and %s are both on port %s; they need a port each", other.key, l.key, port)
			}
		}
		all = append(all, listener{l.key, host, port})
	}
}

// anywhere says that a host of a listener is all of the machine's.
func anywhere(host string) bool { return host == "" || host == "0.0.0.0" || host == "::" }

// The fields of the fixed event types that hold an id, those of them that every
// such event has, and those that hold a user's.
var (
	requiredFields = map[string][]string{
		"post":    {"actor", "post"},
		"comment": {"actor", "post", "author"},
		"like":    {"actor", "post", "author"},
		"mention": {"actor", "target"},
		"message": {"actor", "target"},
	}
	fixedFields = map[string][]string{
		"post":    {"actor", "post", "repost_of", "author"},
		"comment": {"actor", "post", "author", "comment"},
		"like":    {"actor", "post", "author"},
		"mention": {"actor", "target", "post"},
		"message": {"actor", "target", "message"},
	}
	userFields = []string{"actor", "author", "target"}
)

// builtInTypes have no rules; what each does instead.
var builtInTypes = map[string]string{
	"follow": "it keeps user.following, user.follower, user.friend and unread.follower",
	"notice": "it goes to its channel",
	"read":   "it takes unread numbers back",
	"adjust": "it names its column itself",
}

// commonFields mean the same in every event and are no ids.
var commonFields = []string{"type", "at", "by", "delete"}

// unreadCounter is the counter whose rows are users' and whose columns reads
// take back.
const unreadCounter = "unread"

// rulesMax is how many rules an event type may have.
const rulesMax = operators.RulesMax

func (d *decoder) checkRules(c *Config) {
	columns := columnNames(c.Counters)
	items := c.items()
	if _, stated := d.lines["rules"]; !stated {
		d.checkDefaultRules(c, columns)
		return
	}
	for _, event := range c.EventRules {
		key := under("rules", event.Type)
		built, isBuiltIn := builtInTypes[event.Type]
		switch {
		case isBuiltIn:
			d.fault(d.lines[key], key, "%s is built in and takes no rules: %s", event.Type, built)
			continue
		case event.Type == "pack":
			d.fault(d.lines[key], key, "%s is a subject, not an event type; choose another name", event.Type)
			continue
		default:
			d.named(d.lines[key], key, event.Type, &labelNamed)
		}
		for i, r := range event.Rules {
			d.checkRule(ruleKey(key, i), event.Type, r, columns)
			d.checkOnce(ruleKey(key, i), event.Type, r, items)
		}
	}
}

// checkDefaultRules sees whether the default rules fit counters of the file.
func (d *decoder) checkDefaultRules(c *Config, columns []string) {
	var missing []string
	for _, event := range c.EventRules {
		for _, r := range event.Rules {
			if !slices.Contains(columns, r.Add) && !slices.Contains(missing, r.Add) {
				missing = append(missing, r.Add)
			}
		}
	}
	if len(missing) > 0 {
		d.crossFault([]string{"counters"}, "the default rules add to %s, which these counters do not have; state rules too (rules: {} for none)",
			strings.Join(missing, ", "))
	}
}

// items are how many items columns keep, of those that do.
func (c *Config) items() map[string]int {
	items := make(map[string]int)
	for _, counter := range c.Counters {
		for _, column := range counter.Columns {
			if column.Items > 0 {
				items[counter.Name+"."+column.Name] = column.Items
			}
		}
	}
	return items
}

func columnNames(counters []Counter) (names []string) {
	for _, counter := range counters {
		for _, column := range counter.Columns {
			names = append(names, counter.Name+"."+column.Name)
		}
	}
	return names
}

func (d *decoder) checkRule(key, event string, r Rule, columns []string) {
	counter, _, _ := strings.Cut(r.Add, ".")
	if d.required(key, "add", r.Add, "the column, like post.like") && !slices.Contains(columns, r.Add) &&
		d.sound("counters", under("counters", counter)) {
		add := under(key, "add")
		d.fault(d.lines[add], add, "no column %s; %s", quote(r.Add), instead(r.Add, columns))
	}
	if d.required(key, "key", r.Key, "the field that holds the row's id") {
		d.checkField(under(key, "key"), event, r.Key, false)
	}
	fields, fixed := fixedFields[event]
	isUser := !fixed || !slices.Contains(fields, r.Key) || slices.Contains(userFields, r.Key)
	if !isUser && strings.HasPrefix(r.Add, unreadCounter+".") {
		k := under(key, "key")
		d.fault(d.lines[k], k, "%s is not a user, and %s is kept by user; allowed: %s", r.Key, unreadCounter, strings.Join(usersOf(fields), ", "))
	}
	for _, condition := range []struct{ name, field string }{{"if", r.If}, {"unless", r.Unless}} {
		k := under(key, condition.name)
		line, stated := d.lines[k]
		if !stated || !d.sound(k) {
			continue
		}
		if condition.field == operators.Self && !isUser {
			d.fault(line, k, "self asks whether the key's user is the actor, but the key, %s, is not a user", r.Key)
			continue
		}
		d.checkField(k, event, condition.field, true)
	}
	if r.If != "" && r.If == r.Unless {
		d.crossFault([]string{under(key, "if"), under(key, "unless")}, "if and unless are both %s; the rule would never hold", r.If)
	}
}

// checkField sees whether events of a type can have a field.
func (d *decoder) checkField(key, event, field string, condition bool) {
	line := d.lines[key]
	if condition && field == operators.Self {
		return
	}
	if fields, fixed := fixedFields[event]; fixed {
		if condition {
			fields = append(slices.Clone(fields), operators.Self)
		}
		if !slices.Contains(fields, field) {
			d.fault(line, key, "a %s has no field %s; %s", event, quote(field), instead(field, fields))
		}
		return
	}
	switch {
	case field == "" || len(field) > 64:
		d.fault(line, key, "%s is not a field's name; allowed: 1 to 64 bytes", quote(field))
	case slices.Contains(commonFields, field):
		d.fault(line, key, "%s is a field of every event and holds no id; allowed: any other name", field)
	case field == operators.Self:
		d.fault(line, key, "self is a condition, not a field; allowed: a field's name")
	}
}

func usersOf(fields []string) (users []string) {
	for _, f := range fields {
		if slices.Contains(userFields, f) {
			users = append(users, f)
		}
	}
	return users
}

// required reports whether a rule has one of its keys, without a fault.
func (d *decoder) required(rule, name, value, what string) bool {
	key := under(rule, name)
	line, stated := d.lines[key]
	switch {
	case !d.sound(rule, key):
		return false
	case !stated:
		d.fault(d.lines[rule], key, "is missing; want %s", what)
		return false
	case value == "":
		d.fault(line, key, "is empty; want %s", what)
		return false
	}
	return true
}

// sound reports whether keys have no faults so far.
func (d *decoder) sound(keys ...string) bool {
	for _, key := range keys {
		if d.unsound[key] {
			return false
		}
	}
	return true
}

// crossFault faults several keys together, at the last that the file states,
// unless one has a fault of its own: that is to be mended first.
func (d *decoder) crossFault(keys []string, format string, args ...any) {
	if !d.sound(keys...) {
		return
	}
	at, line := keys[0], 1
	for _, key := range keys {
		if l, stated := d.lines[key]; stated && l >= line && d.sources[at] == "" || d.sources[key] != "" {
			at, line = key, max(l, 1)
		}
	}
	d.fault(line, at, format, args...)
}

// given faults a text that must not be empty.
func (d *decoder) given(key, value string) bool {
	if value == "" && d.sound(key) {
		d.fault(d.lines[key], key, "is empty; want a value, or leave the key out for the default")
	}
	return value != ""
}

func (d *decoder) oneOf(key, value string, allowed ...string) {
	if d.sound(key) && !slices.Contains(allowed, value) {
		d.fault(d.lines[key], key, "%s is not known; %s", quote(value), instead(value, allowed))
	}
}

func within[T int | Size | time.Duration](d *decoder, key string, value, low, high T) {
	if d.sound(key) && (value < low || value > high) {
		d.fault(d.lines[key], key, "%s is out of bounds; allowed: %s to %s", format(value), format(low), format(high))
	}
}

func format(value any) string {
	if d, ok := value.(time.Duration); ok {
		return FormatDuration(d)
	}
	return fmt.Sprint(value)
}

var hostPattern = regexp.MustCompile(`^[A-Za-z0-9_]([A-Za-z0-9_.-]*[A-Za-z0-9_])?$`)

func (d *decoder) checkListen(key, address string) {
	if !d.sound(key) {
		return
	}
	host, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil || !isHost(host) {
		d.fault(d.lines[key], key, "%s is not an address; allowed: host:port like 127.0.0.1:4222, [::1]:4222 or :4222, port 0 to 65535", quote(address))
	}
}

func (d *decoder) checkHosts(key string, names []string) {
	for i, name := range names {
		if _, err := netip.ParseAddr(name); err == nil || name == "" || !isHost(name) {
			d.fault(d.lines[key], key, "number %d, %s, is not a name; allowed: names like tidemark or counts.example.org, without a port (IP addresses need no entry)", i+1, quote(name))
		}
	}
}

// isHost takes "", an IP address or a name; a name does not end in a number,
// so that 300.0.0.1 is not one.
func isHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return true
	}
	last := host[strings.LastIndexByte(host, '.')+1:]
	_, err := strconv.Atoi(last)
	return err != nil && hostPattern.MatchString(host)
}

var urlSchemes = []string{"nats", "tls", "ws", "wss"}

// checkURL does not show what it read: a URL may hold a password.
func (d *decoder) checkURL(key, list string) {
	for i, server := range strings.Split(list, ",") {
		server = strings.TrimSpace(server)
		if !strings.Contains(server, "://") {
			server = "nats://" + server
		}
		u, err := url.Parse(server)
		if err != nil || u.Hostname() == "" || !slices.Contains(urlSchemes, u.Scheme) {
			d.fault(d.lines[key], key, "server %d of the list is not a URL; allowed: nats://, tls://, ws:// or wss:// with host and port, like nats://127.0.0.1:4222", i+1)
			return
		}
	}
}

// bucketPattern is of an object store's name; its stream is OBJ_ and that, 255 at most.
var bucketPattern = regexp.MustCompile(`^[A-Za-z0-9_-]{1,251}$`)

// CheckPlace says what is wrong with the name of a place of backups: a directory, or
// nats:BUCKET.
func CheckPlace(name string) error {
	if bucket, is := strings.CutPrefix(name, "nats:"); is && !bucketPattern.MatchString(bucket) {
		return fmt.Errorf("%s is no object store; allowed: 1 to 251 of A-Z a-z 0-9 _ -", quote(bucket))
	}
	return nil
}
