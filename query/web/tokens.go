package web

import (
	"bufio"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Roles are the endpoints that each role may use; nil: all.
type Roles map[string][]string

// tokenMin bounds tokens that can be guessed.
const tokenMin = 16

// Tokens are what each token may use, by the hash of the token: to look one up takes the
// same time whatever of it is right.
type Tokens map[[sha256.Size]byte]endpoints

// endpoints are those that a token may use; nil: all.
type endpoints []string

// ReadTokens reads lines of a token and a role. Blank lines and those that begin with #
// are passed over. Errors name the line, and never the token.
func ReadTokens(r io.Reader, roles Roles) (Tokens, error) {
	tokens := Tokens{}
	lines := bufio.NewScanner(r)
	for number := 1; lines.Scan(); number++ {
		if err := tokens.add(strings.Fields(lines.Text()), roles); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	if len(tokens) == 0 && lines.Err() == nil {
		return nil, errors.New("there is no token in it")
	}
	return tokens, lines.Err()
}

func (t Tokens) add(fields []string, roles Roles) error {
	switch {
	case len(fields) == 0 || strings.HasPrefix(fields[0], "#"):
		return nil
	case len(fields) != 2:
		return errors.New("a token and a role are needed, as in: 3f9c…  reader")
	case len(fields[0]) < tokenMin:
		return fmt.Errorf("the token has fewer than %d characters", tokenMin)
	case !roles.have(fields[1]):
		return fmt.Errorf("%.50q is not a role: %s", fields[1], strings.Join(slices.Sorted(maps.Keys(roles)), ", "))
	}
	t[sha256.Sum256([]byte(fields[0]))] = roles[fields[1]]
	return nil
}

func (r Roles) have(name string) bool {
	_, is := r[name]
	return is
}

// admits says whether a request may use an endpoint. Without tokens all may.
func (t Tokens) admits(r *http.Request, endpoint string) *problem {
	if t == nil {
		return nil
	}
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	may, known := t[sha256.Sum256([]byte(token))]
	switch {
	case !bearer || !known:
		return refuse(http.StatusUnauthorized, "a token is needed: Authorization: Bearer TOKEN")
	case may != nil && !slices.Contains(may, endpoint):
		return refuse(http.StatusForbidden, "this token may not do that")
	}
	return nil
}
