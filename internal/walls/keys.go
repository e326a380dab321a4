package walls

import (
	"bufio"
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
	clients, err := clientsOf(auth)
	if err != nil {
		return "", fmt.Errorf("nats.auth: %s: %w", auth, err)
	}
	return Embedded(node, clients, false), nil
}

func clientsOf(path string) ([]Client, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return ReadClients(f)
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
	Key      string // a public nkey, or NAME:PASSWORD
	RoleName string // of Roles, or application, operator
}

// ReadClients reads lines of a key and a role. Blank lines and those that begin with # are
// passed over. Errors name the line, and never the key.
func ReadClients(r io.Reader) (list []Client, err error) {
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		c, err := clientOf(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		list = append(list, c)
	}
	if len(list) == 0 && lines.Err() == nil {
		return nil, errors.New("there is no key in it")
	}
	return list, lines.Err()
}

func clientOf(fields []string) (c Client, err error) {
	if len(fields) != 2 {
		return c, errors.New("a key and a role are needed, as in: UABC…  reader")
	}
	c = Client{fields[0], fields[1]}
	return c, c.check()
}

// passwordMin bounds passwords that can be guessed.
const passwordMin = 16

func (c *Client) check() error {
	name, password, named := strings.Cut(c.Key, ":")
	switch {
	case c.RoleName != Operator && roleOf(c.RoleName) == nil:
		return fmt.Errorf("%.50q is not a role: producer, reader, gateway, application, operator", c.RoleName)
	case named && (name == "" || len(password) < passwordMin):
		return fmt.Errorf("a name and a password of %d characters or more are needed", passwordMin)
	case !named && !nkeys.IsValidPublicUserKey(c.Key):
		return errors.New("it is no public nkey of a user (U…), and no NAME:PASSWORD")
	}
	return nil
}
