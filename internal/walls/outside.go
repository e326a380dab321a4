package walls

import (
	_ "embed" // outside.conf
	"strings"
	"text/template"
)

//go:embed outside.conf
var outside string

// Outside is the same table for a NATS server of the operator's: a file to include in its
// configuration. deploy/nats-accounts.conf is its output.
func Outside() string {
	var b strings.Builder
	if err := template.Must(template.New("").Parse(outside)).Execute(&b, lists()); err != nil {
		panic(err) // into memory, of a template that is part of the program
	}
	return b.String()
}

// lists are what each role may publish, but discovery: it is not exported there.
func lists() map[string]string {
	all := map[string]string{}
	for i := range Roles {
		all[Roles[i].Name] = publish(subjects(&Roles[i])[1:], &Roles[i])
	}
	return all
}
