// Package walls says what each client may do on a NATS server that Tidemark is on: one
// table, [Roles]. [Accounts] writes it for a server in a node's process, [Outside] for one
// of the operator's; keys.go has the node's key, and the clients of a file.
//
// There are two sides. Inside is one account: the streams, the bucket, what nodes say to
// each other. Nodes and operators are in it, and may do all. Outside is another account,
// whose clients have a role of the table: they publish events and ask, and nothing of the
// inside reaches them but answers. Within one account a client could name any subject as
// the place for its answer, JetStream's API too; an answer to another account stays there.
//
// docs/security.md has the same for operators. Everything here is text; nothing is opened.
package walls

import (
	"fmt"
	"slices"
	"strings"
)

const (
	// Inside is the account of streams, nodes and operators.
	Inside = "TIDEMARK"
	// Applications is the account of clients of an embedded server.
	Applications = "APPLICATIONS"
	// Stranger is the user that a client without credentials is.
	Stranger = "application"
)

// Role is what clients of one kind may do, over NATS and over HTTP.
type Role struct {
	Name    string
	Events  string   // subjects that it may publish to, behind "events."; "": none
	Not     []string // event types that it may not send all the same
	Queries []string // of the query service
}

// MaySend says whether the role may send events of a type.
func (r *Role) MaySend(kind string) bool { return r.Events != "" && !slices.Contains(r.Not, kind) }

// MayAsk says whether the role may ask a request of the query service.
func (r *Role) MayAsk(query string) bool {
	return r.Name == Operator || slices.Contains(r.Queries, query)
}

var (
	reader  = []string{"get", "unread", "feed", "following", "followers", "members", "inbox", "page", "schema"}
	gateway = append(slices.Clone(reader), "read")
	all     = append(slices.Clone(gateway), "stats", "nodes", "shards", "explain")
)

// Roles are those of clients. An operator is inside, as nodes are, and may do all.
var Roles = []Role{
	// Not adjust, which sets any counter, nor read, which is of any user, nor pack, the
	// lines of which may be of any type.
	{Name: "producer", Events: "*", Not: []string{"adjust", "read", "pack"}},
	{Name: "reader", Queries: reader},
	{Name: "gateway", Queries: gateway},
	{Name: Stranger, Events: ">", Queries: all},
	{Name: Operator, Events: ">", Queries: all},
}

// Queries are all that a client of an embedded server may ask.
func Queries() []string { return slices.Clone(all) }

// internalEvents are subjects of EVENTS that only nodes write.
var internalEvents = []string{"events.resent.>"}

// Operator is the role that is inside.
const Operator = "operator"

// roleOf is the role of a name. An error does not say the name: it may be the secret.
func roleOf(name string) (*Role, error) {
	var names []string
	for i := range Roles {
		if Roles[i].Name == name {
			return &Roles[i], nil
		}
		names = append(names, Roles[i].Name)
	}
	return nil, fmt.Errorf("the second word is not a role: %s", strings.Join(names, ", "))
}

// Embedded is the same for a node's public nkey and clients. Others are applications if
// open says so; else they are refused.
func Embedded(node string, clients []Client, open bool) string {
	inside, outside := []string{"{nkey: " + node + "}"}, []string{}
	for _, c := range clients {
		if c.Role.Name == Operator {
			inside = append(inside, "{"+c.identity()+"}")
		} else {
			outside = append(outside, "{"+c.identity()+permissions(c.Role)+"}")
		}
	}
	stranger := ""
	if open {
		outside = append(outside, "{user: "+Stranger+permissions(application())+"}")
		stranger = "no_auth_user: " + Stranger + "\n"
	}
	exports, imports := services()
	return fmt.Sprintf("accounts {\n%s {\njetstream: enabled\nusers: %s\nexports: %s\n}\n%s {\nusers: %s\nimports: %s\n}\n}\n%s",
		Inside, array(inside), array(exports), Applications, array(outside), array(imports), stranger)
}

// application is what a client without credentials may do on an embedded server.
func application() *Role {
	r, _ := roleOf(Stranger) // it is one
	return r
}

// services are the doors, from both sides.
func services() (exports, imports []string) {
	for _, d := range doors() {
		exports = append(exports, fmt.Sprintf("{service: %q%s}", d.subject, d.response()))
		imports = append(imports, fmt.Sprintf("{service: {account: %s, subject: %q}}", Inside, d.subject))
	}
	return exports, imports
}

func array(lines []string) string { return "[\n" + strings.Join(lines, "\n") + "\n]" }

// identity is how the server knows the client.
func (c *Client) identity() string {
	if name, password, named := strings.Cut(c.Key, ":"); named {
		return fmt.Sprintf("user: %q, password: %q", name, password)
	}
	return "nkey: " + c.Key
}

// permissions are a role's, as of a user in the server's configuration.
func permissions(r *Role) string {
	return ", permissions: {publish: " + publish(subjects(r), r) + `, subscribe: ["_INBOX.>"]}`
}

// publish is what a role may publish: allow but what it, or any client, may not send.
func publish(allow []string, r *Role) string {
	if r.Events == "" {
		return quoted(allow)
	}
	deny := slices.Clone(internalEvents)
	for _, kind := range r.Not {
		deny = append(deny, "events."+kind)
	}
	return fmt.Sprintf("{allow: %s, deny: %s}", quoted(allow), quoted(deny))
}

// door is a subject that leads inside.
type door struct {
	subject string
	many    bool // several answer
}

func (d *door) response() string {
	if d.many {
		return ", response_type: stream"
	}
	return ""
}

// doors are the subjects that lead inside: of all that any client may publish to.
func doors() (list []door) {
	for _, subject := range subjects(application()) {
		list = append(list, door{subject, subject == discovery})
	}
	return list
}

// discovery is of the micro service.
const discovery = "$SRV.>"

// subjects are those that a role may publish to, but for what it may not send.
func subjects(r *Role) []string {
	list := []string{discovery}
	if r.Events != "" {
		list = append(list, "events."+r.Events)
	}
	for _, query := range r.Queries {
		list = append(list, "tidemark."+query)
	}
	return list
}

func quoted(list []string) string {
	return `["` + strings.Join(list, `", "`) + `"]`
}
