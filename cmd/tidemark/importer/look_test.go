package importer

import (
	"strings"
	"testing"
)

// What is no file of events is named before anything of it is published.
func TestLook(t *testing.T) {
	long := `{"type":"comment","text":"` + strings.Repeat("x", prefixBytesMax)
	for text, like := range map[string]string{
		"":                              "it is empty",
		"\n \n\r\n":                     "it is empty",
		"id,likes\n1,2\n":               "it looks like CSV; an event is",
		"post,42,like,7\n":              "it looks like CSV of counts",
		`[{"type":"like"}]`:             "it looks like a JSON array",
		"[\n  {\"type\":\"like\"}\n]\n": "it looks like a JSON array",
		"{\n  \"type\": \"like\"\n}\n":  "it looks like JSON of several lines",
		`{"a":1}` + "\n" + `{"b":2}`:    `its lines are JSON objects without a type, like "{\"a\":1}"`,
		`{"type":7}`:                    "without a type",
		"\x1f\x8b\x08\x00\x00":          "it looks like gzip within gzip",
		"\x28\xb5\x2f\xfd\x04":          "it looks like zstd",
		"PK\x03\x04":                    "it looks like a zip archive",
		"\xff\xfe{\x00":                 "it looks like UTF-16",
		"\x00\x01\x02\n":                "it looks binary",
		"\xc3\x28\xff":                  "it looks binary",
		"like 7 42 9\n":                 `line 1 is not a JSON object: "like 7 42 9"`,
		strings.Repeat("x,y\n", looksMax) + `{"type":"like"}`: "it looks like CSV;",
	} {
		if err := lookAt([]byte(text)); err == nil || !strings.Contains(err.Error(), like) || !strings.Contains(err.Error(), "--force") {
			t.Errorf("%.40q: %v, want %q", text, err, like)
		}
	}
	for _, text := range []string{
		`{"type":"like"}`, "\n\n" + `{"type":"like"}`, "junk\n" + `{"type":"like","actor":1}` + "\r\n", long[:prefixBytesMax],
	} {
		if err := lookAt([]byte(text)); err != nil {
			t.Errorf("%.40q: %v", text, err)
		}
	}
	for text, like := range map[string]string{
		"":                      "it is empty",
		`{"type":"like"}`:       "it looks like events: import it without --format csv",
		"post;42;like;7\n":      `line 1 is "post;42;like;7": `,
		"title,author\na,b,c\n": `line 1 is "title,author": `,
	} {
		if err := lookAtCounts([]byte(text)); err == nil || !strings.Contains(err.Error(), like) {
			t.Errorf("csv %q: %v, want %q", text, err, like)
		}
	}
	for _, text := range []string{"counter,id,column,value\n", "post,42,like,7", "what\npost,42,like,7\n"} {
		if err := lookAtCounts([]byte(text)); err != nil {
			t.Errorf("csv %q: %v", text, err)
		}
	}
}
