package acceptance_test

import (
	"io"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tidemark-io/tidemark/internal/e2e"
)

// docs/contract.md: "Bodies and replies as over NATS". 20,000 users and 20,000 posts of
// Higgs, through both doors, byte by byte.
func checkHTTP(t *testing.T, p *e2e.Process, nc *nats.Conn, dir string) {
	t.Helper()
	posts := readTable(t, filepath.Join(dir, "expected_posts.tsv.gz"), postColumns)
	users := readTable(t, filepath.Join(dir, "expected_users.tsv.gz"), userColumns)
	sameAnswers(t, p, nc, posts.ids, "/v1/get/post/", "get", `{"counter":"post","ids":[`)
	sameAnswers(t, p, nc, users.ids, "/v1/get/user/", "get", `{"counter":"user","ids":[`)
	sameAnswers(t, p, nc, users.ids, "/v1/unread/", "unread", `{"users":[`)
}

func sameAnswers(t *testing.T, p *e2e.Process, nc *nats.Conn, ids []uint64, path, endpoint, body string) {
	t.Helper()
	for some := range slices.Chunk(ids[:min(len(ids), 20_000)], 500) {
		var list []string
		for _, id := range some {
			list = append(list, strconv.FormatUint(id, 10))
		}
		want, err := nc.Request("tidemark."+endpoint, []byte(body+`"`+strings.Join(list, `","`)+`"]}`), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := http.Get(p.HTTP + path + strings.Join(list, ","))
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		if err != nil || string(got) != string(want.Data) {
			t.Fatalf("%s of %d and others\nHTTP %d %.300s (%v)\nNATS %.300s", endpoint, some[0], reply.StatusCode, got, err, want.Data)
		}
	}
}
