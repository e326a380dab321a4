package kit

import (
	"net/url"
	"regexp"
	"strings"
)

// Hidden stands where a secret is not shown.
const Hidden = "[secret]"

// server is what is an address without a secret.
var server = regexp.MustCompile(`^(\w+://)?(\[[\w.:%]*\]|[\w.-]*)(:\d+)?/?$`)

// Address is a server's address, or several with commas between, as it may be shown: what
// stands before the @ is hidden, with a scheme or without.
func Address(list string) string {
	shown, _ := Addresses(list)
	return shown
}

// Addresses is Address, and lists the tokens and passwords in it, as written and as meant.
func Addresses(list string) (shown string, secrets []string) {
	all := strings.Split(list, ",")
	for i, one := range all {
		at := strings.LastIndexByte(one, '@')
		if at < 0 {
			if strings.ContainsRune(list, '@') && !server.MatchString(one) { // the beginning of a password with a comma
				all[i] = Hidden
				secrets = append(secrets, one)
			}
			continue
		}
		scheme, user, found := strings.Cut(one[:at], "://")
		if found {
			scheme += "://"
		} else {
			scheme, user = "", one[:at]
		}
		all[i] = scheme + Hidden + one[at:]
		if _, password, named := strings.Cut(user, ":"); named {
			user = password
		}
		secrets = append(secrets, user)
		if meant, err := url.PathUnescape(user); err == nil {
			secrets = append(secrets, meant)
		}
	}
	return strings.Join(all, ","), secrets
}

// secretLike finds what is written as secrets are: before the @ of an address, after Bearer,
// behind a name of one (a parameter, a field of JSON, a variable), the seed of an nkey, a JWT.
// Each group before a secret stays.
var secretLike = regexp.MustCompile(`(://)[^\s"'/@]+(?:@[^\s"'/@]+)*(@)` +
	`|\b[\w.%+-]+:[^\s"'/@:,]+(@)` +
	`|((?i:bearer|basic) +)[\w.~+/=-]{6,}` +
	`|((?i:[\w.-]*(?:token|password|passwd|secret))\\?["']?\s*[:=]\s*)(?:\\"[^"\\]*\\"|"(?:[^"\\]|\\.)*"|'[^']*'|[^\s"'&,;{}\[\]]+)` +
	`|\bS[ANUCOXP][A-Z2-7]{50,}\b` +
	`|\beyJ[\w-]{8,}\.[\w-]+\.[\w-]*`)

// Clean returns a text without what is written as secrets are.
func Clean(text string) string {
	return secretLike.ReplaceAllString(text, "${1}${4}${5}"+Hidden+"${2}${3}")
}
