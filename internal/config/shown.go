package config

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// secretFiles are the keys that name a file with a secret in it.
var secretFiles = []string{"nats.credentials", "nats.nkey", "nats.auth", "nats.tls.key", "api.tokens"}

// Shown is the configuration as it is in force, a key a line, without secrets; and the
// secrets, so that they can be taken from other texts too. used are the variables that
// Load returned.
func (c *Config) Shown(used []string) (text string, secrets []string) {
	var b strings.Builder
	leaves(reflect.ValueOf(c).Elem(), "", func(key string, field reflect.Value) {
		value, hidden := shown(key, field, slices.Contains(used, VariableOf(key)+fileSuffix))
		secrets = append(secrets, hidden...)
		fmt.Fprintf(&b, "%s: %s\n", key, value)
	})
	return b.String(), secrets
}

// shown is a value as it may be shown, and what is secret of it.
func shown(key string, field reflect.Value, fromFile bool) (text string, secrets []string) {
	switch {
	case fromFile:
		return kit.Hidden, []string{field.String()}
	case slices.Contains(secretFiles, key):
		return shownPath(field.String())
	}
	switch v := field.Interface().(type) {
	case string:
		return kit.Addresses(v)
	case []string:
		return kit.Addresses(strings.Join(v, ","))
	case fmt.Stringer:
		return v.String(), nil
	}
	if field.Kind() != reflect.Slice {
		return fmt.Sprint(field.Interface()), nil
	}
	list, err := json.Marshal(field.Interface())
	if err != nil {
		return err.Error(), nil
	}
	return string(list), nil
}

// secretWordMin is the least length of a word in a file of secrets that is taken for one.
const secretWordMin = 12

// shownPath is the path of a file of secrets. What names no file may be the secret itself,
// put in the wrong place.
func shownPath(path string) (text string, secrets []string) {
	if path == "" || path == AuthOpen {
		return path, nil
	}
	file, err := os.ReadFile(path)
	if err != nil {
		return kit.Hidden + ": it names no file that can be read", []string{path}
	}
	for _, word := range strings.Fields(string(file)) {
		_, password, _ := strings.Cut(word, ":")
		for _, secret := range []string{word, password} {
			if len(secret) >= secretWordMin {
				secrets = append(secrets, secret)
			}
		}
	}
	return path, secrets
}
