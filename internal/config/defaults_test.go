package config

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/tidemark-io/tidemark/internal/golden"
)

// What each key is without a file, as the program understands it.
func TestGoldenDefaults(t *testing.T) {
	var text strings.Builder
	var show func(key string, v reflect.Value)
	show = func(key string, v reflect.Value) {
		if v.Kind() != reflect.Struct {
			fmt.Fprintf(&text, "%s: %+v\n", key, v)
			return
		}
		for i := range v.NumField() {
			if name, ok := v.Type().Field(i).Tag.Lookup("yaml"); ok && name != "-" {
				show(under(key, name), v.Field(i))
			}
		}
	}
	show("", reflect.ValueOf(*Default()))
	golden.Check(t, "defaults", text.String())
}
