package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
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
	const file = "testdata/defaults.golden"
	if *update {
		if err := os.WriteFile(file, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("defaults differ from %s (-update rewrites it; look at the diff):\n%s", file, text.String())
	}
}
