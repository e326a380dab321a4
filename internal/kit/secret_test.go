package kit

import "testing"

func TestClean(t *testing.T) {
	seed := "SUAIBDPBAUTWCWBKIO6XHQNINK5FWJW4OHLXC3HQ2KFE4PEJUA44CNHTC4"
	for _, c := range [][2]string{
		{"lost nats://a:b@c:4222 and nats://tok@d", "lost nats://[secret]@c:4222 and nats://[secret]@d"},
		{"lost a:b@c:4222 at 12:30", "lost [secret]@c:4222 at 12:30"},
		{"nats://u@x:y@h:1", "nats://[secret]@h:1"},
		{"http://h:1/a@b", "http://h:1/a@b"},
		{"Authorization: Bearer abcdef123456", "Authorization: Bearer [secret]"},
		{"GET /v1/live?token=abc&x=1", "GET /v1/live?token=[secret]&x=1"},
		{"GET /?access_token=abc HTTP/1.1", "GET /?access_token=[secret] HTTP/1.1"},
		{`{"user":"a","password":"two \"words","n":1}`, `{"user":"a","password":[secret],"n":1}`},
		{`"msg":"{\"password\": \"x y\"}"`, `"msg":"{\"password\": [secret]}"`},
		{"env X_PASSWORD=hunter2 PGPASSWORD='a b'", "env X_PASSWORD=[secret] PGPASSWORD=[secret]"},
		{"client-secret: abc", "client-secret: [secret]"},
		{"seed " + seed + ".", "seed [secret]."},
		{"jwt eyJ0eXAiOiJKV1Q.eyJqdGkiOi.c2ln end", "jwt [secret] end"},
		{`{"url":"nats://a:b@c"}`, `{"url":"nats://[secret]@c"}`},
		{"api.tokens: /etc/tidemark/tokens", "api.tokens: /etc/tidemark/tokens"},
		{`"tokens":3,"level":"INFO","http":"127.0.0.1:8480"`, `"tokens":3,"level":"INFO","http":"127.0.0.1:8480"`},
	} {
		if got := Clean(c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}

func TestAddress(t *testing.T) {
	for _, c := range [][2]string{
		{"nats://127.0.0.1:4222", "nats://127.0.0.1:4222"},
		{"nats://TOKEN@host", "nats://[secret]@host"},
		{"user:password@host:1", "[secret]@host:1"},
		{"a:1, tls://u:p@b:2,u@x:y@c", "a:1, tls://[secret]@b:2,[secret]@c"},
	} {
		if got := Address(c[0]); got != c[1] {
			t.Errorf("%q: %q, want %q", c[0], got, c[1])
		}
	}
}
