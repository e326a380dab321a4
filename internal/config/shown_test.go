package config

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// A secret in each key that can hold one, in each way in which it can, is not shown, and is
// known as a secret. A key that is added is tested without further work.
func TestShownHasNoSecrets(t *testing.T) {
	const planted = "pl4nted-S3cret-of-a-key"
	file := filepath.Join(t.TempDir(), "secrets")
	if err := os.WriteFile(file, []byte("# "+planted+"\n"+planted+" reader\nname:"+planted+" gateway\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	keys := 0
	check := func(key string, set func(field reflect.Value) (used []string)) {
		t.Helper()
		c, _, err := Load("", nil)
		if err != nil {
			t.Fatal(err)
		}
		var used []string
		leaves(reflect.ValueOf(c).Elem(), "", func(k string, field reflect.Value) {
			if k == key {
				used = set(field)
			}
		})
		text, secrets := c.Shown(used)
		if strings.Contains(text, planted) {
			t.Errorf("%s is shown:\n%s", key, text)
		}
		if !slices.Contains(secrets, planted) || !strings.Contains(text, "\n"+key+": ") && !strings.HasPrefix(text, key+": ") {
			t.Errorf("%s: secrets %q", key, secrets)
		}
	}
	leaves(reflect.ValueOf(&Config{}).Elem(), "", func(key string, field reflect.Value) {
		switch field.Interface().(type) {
		case string:
			keys++
			check(key, func(f reflect.Value) []string { f.SetString(planted); return []string{VariableOf(key) + fileSuffix} })
			if slices.Contains(secretFiles, key) {
				check(key, func(f reflect.Value) []string { f.SetString(planted); return nil })
				check(key, func(f reflect.Value) []string { f.SetString(file); return nil })
				return
			}
			for _, url := range []string{"nats://u:" + planted + "@a:1", "a:1,nats://" + planted + "@b", "u:" + planted + "@c", "tls://u@x:" + planted + "@d/e"} {
				check(key, func(f reflect.Value) []string { f.SetString(url); return nil })
			}
		case []string:
			keys++
			check(key, func(f reflect.Value) []string {
				f.Set(reflect.ValueOf([]string{"nats://a:1", "nats://u:" + planted + "@b:2"}))
				return nil
			})
		}
	})
	if keys < 15 {
		t.Errorf("%d keys", keys)
	}
}

// What is no secret is shown.
func TestShown(t *testing.T) {
	c, _, err := Load("", []string{"TIDEMARK_NATS_URL=nats://me:pa%2Fss@h:1,nats://h:2", "TIDEMARK_MEMORY_BUDGET=1GiB"})
	if err != nil {
		t.Fatal(err)
	}
	text, secrets := c.Shown(nil)
	for _, line := range []string{"nats.url: nats://[secret]@h:1,nats://h:2", "data_dir: ./data", "memory.budget: 1GiB", "freshness: 2s", "nats.auth: ", `"Name":"post"`} {
		if !strings.Contains(text, line) {
			t.Errorf("no %q in\n%s", line, text)
		}
	}
	if want := []string{"pa%2Fss", "pa/ss"}; !slices.Equal(secrets, want) {
		t.Errorf("%q", secrets)
	}
}
