package walls

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"

	"github.com/nats-io/nkeys"

	"github.com/tidemark-io/tidemark/internal/kit"
)

// KeyFile is the name of a node's key in its data directory: the seed of an nkey. A
// process that can read it is inside.
const KeyFile = "node.nk"

// Open says that each client that reaches the port may be an application.
const Open = "open"

// Accounts is the configuration of an embedded server's accounts: with the node's key, of
// the file keyFile, and clients as auth says: Open or "", or the path of a file of keys.
func Accounts(keyFile, auth string) (string, error) {
	node, err := Key(keyFile)
	if err != nil {
		return "", fmt.Errorf("the node's key: %w", err)
	}
	if auth == "" || auth == Open {
		return Embedded(node, nil, true), nil
	}
	clients, err := ClientsOf(auth)
	if err != nil {
		return "", err
	}
	return Embedded(node, clients, false), nil
}

// ClientsOf are those of nats.auth, the path of a file.
func ClientsOf(path string) ([]Client, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("nats.auth: %w", err)
	}
	defer f.Close()
	clients, err := ReadClients(f)
	if err != nil {
		return nil, fmt.Errorf("nats.auth: %s: %w", path, err)
	}
	return clients, nil
}

// Key returns the public nkey of the seed at path, and makes one where there is no file.
func Key(path string) (public string, err error) {
	seed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		seed, err = makeKey(path)
	}
	if err != nil {
		return "", err
	}
	pair, err := nkeys.ParseDecoratedNKey(seed)
	if err != nil {
		return "", fmt.Errorf("%s is not the seed of an nkey: %w", path, err)
	}
	return pair.PublicKey()
}

func makeKey(path string) (seed []byte, err error) {
	pair, err := nkeys.CreateUser()
	if err != nil {
		return nil, err
	}
	if seed, err = pair.Seed(); err != nil {
		return nil, err
	}
	return writeOnce(path, append(seed, '\n'))
}

// writeOnce writes a file unless there is one, and returns what is in it. Nodes of one
// cluster that share a key may make it at the same moment: the first one has made it, and
// it is whole when it is there.
func writeOnce(path string, seed []byte) ([]byte, error) {
	made := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := kit.ReplaceFile(made, 0o600, kit.Bytes(seed)); err != nil {
		return nil, err
	}
	defer os.Remove(made)
	if err := os.Link(made, path); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, err
	}
	return os.ReadFile(path)
}

// Client is a line of a file of keys.
type Client struct {
	Key  string // a public nkey, or NAME:PASSWORD
	Role *Role
}

// ReadClients reads lines of a key and a role (readRoles).
func ReadClients(r io.Reader) (list []Client, err error) {
	given := map[string]bool{} // keys, and names of passwords
	err = readRoles(r, "key", "UABC…", func(key string, role *Role) error {
		name, _, _ := strings.Cut(key, ":")
		if given[name] {
			return errors.New("the key, or the name of the password, stands there twice")
		}
		given[name] = true
		list = append(list, Client{key, role})
		return checkKey(key)
	})
	return list, err
}

// Tokens are what each token may do, by the hash of the token: to look one up takes the
// same time whatever of it is right.
type Tokens map[[sha256.Size]byte]*Role

// ReadTokens reads lines of a token and a role (readRoles).
func ReadTokens(r io.Reader) (Tokens, error) {
	tokens := Tokens{}
	err := readRoles(r, "token", "3f9c…", func(token string, role *Role) error {
		hash := sha256.Sum256([]byte(token))
		switch {
		case len(token) < secretMin:
			return fmt.Errorf("the token has fewer than %d characters", secretMin)
		case tokens[hash] != nil:
			return errors.New("the token stands there twice")
		}
		tokens[hash] = role
		return nil
	})
	return tokens, err
}

// Role is the role of a token, nil if it is not known.
func (t Tokens) Role(token string) *Role { return t[sha256.Sum256([]byte(token))] }

// readRoles reads lines of something secret and a role. Blank lines and those that begin
// with # are passed over. Errors name the line, and never the secret.
func readRoles(r io.Reader, what, like string, add func(secret string, role *Role) error) error {
	lines, some := bufio.NewScanner(r), false
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(strings.TrimPrefix(lines.Text(), "\ufeff"))
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		if len(fields) != 2 {
			return fmt.Errorf("line %d: a %s and a role are needed, as in: %s  reader", number, what, like)
		}
		role, err := roleOf(fields[1])
		if err == nil {
			err = add(fields[0], role)
		}
		if err != nil {
			return fmt.Errorf("line %d: %w", number, err)
		}
		some = true
	}
	if !some && lines.Err() == nil {
		return fmt.Errorf("there is no %s in it", what)
	}
	return lines.Err()
}

// secretMin bounds passwords and tokens that can be guessed, in characters.
const secretMin = 16

func checkKey(key string) error {
	name, password, named := strings.Cut(key, ":")
	switch {
	case named && (name == "" || len(password) < secretMin):
		return fmt.Errorf("a name and a password of %d characters or more are needed", secretMin)
	case !named && !nkeys.IsValidPublicUserKey(key):
		return errors.New("it is no public nkey of a user (U…), and no NAME:PASSWORD")
	}
	return nil
}
