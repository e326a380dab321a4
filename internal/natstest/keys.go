package natstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nkeys"
)

// Authority signs certificates that are good for as long as a test runs.
type Authority struct {
	File string // its own certificate

	tb   testing.TB
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	last int64
}

// NewAuthority makes one that nobody else knows.
func NewAuthority(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, dir: tb.TempDir()}
	a.cert = a.template("authority")
	a.cert.IsCA, a.cert.BasicConstraintsValid, a.cert.KeyUsage = true, true, x509.KeyUsageCertSign
	a.key = a.newKey()
	a.File = a.sign(a.cert, &a.key.PublicKey, "authority.pem")
	return a
}

// Issue makes the certificate and the key of a server on this machine, or of a
// client, as files.
func (a *Authority) Issue(name string) (cert, key string) {
	a.tb.Helper()
	t := a.template(name)
	t.KeyUsage = x509.KeyUsageDigitalSignature
	t.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	t.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	private := a.newKey()
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.sign(t, &private.PublicKey, name+".pem"), a.write(name+".key", "PRIVATE KEY", der)
}

func (a *Authority) template(name string) *x509.Certificate {
	a.last++
	return &x509.Certificate{
		SerialNumber: big.NewInt(a.last), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
	}
}

func (a *Authority) newKey() *ecdsa.PrivateKey {
	a.tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.tb.Fatal(err)
	}
	return key
}

func (a *Authority) sign(t *x509.Certificate, public *ecdsa.PublicKey, file string) string {
	a.tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, t, a.cert, public, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return a.write(file, "CERTIFICATE", der)
}

func (a *Authority) write(file, kind string, der []byte) string {
	a.tb.Helper()
	return writeSecret(a.tb, filepath.Join(a.dir, file), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
}

func writeSecret(tb testing.TB, path string, what []byte) string {
	tb.Helper()
	if err := os.WriteFile(path, what, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// Nkey makes a user who is known by a key: the public one, which a server is
// told, and a file with the seed.
func Nkey(tb testing.TB) (public, seedFile string) {
	tb.Helper()
	user := newNkey(tb, nkeys.CreateUser)
	seed, err := user.Seed()
	if err != nil {
		tb.Fatal(err)
	}
	return publicKey(tb, user), writeSecret(tb, filepath.Join(tb.TempDir(), "user.nk"), seed)
}

// Credentials makes an operator, an account with JetStream and a user of it:
// what a server's configuration needs to know them, and the user's .creds file.
func Credentials(tb testing.TB) (config, credsFile string) {
	tb.Helper()
	operator, system, account := newNkey(tb, nkeys.CreateOperator), newNkey(tb, nkeys.CreateAccount), newNkey(tb, nkeys.CreateAccount)
	encode := func(c jwt.Claims, by nkeys.KeyPair) string {
		text, err := c.Encode(by)
		if err != nil {
			tb.Fatal(err)
		}
		return text
	}
	counting := jwt.NewAccountClaims(publicKey(tb, account))
	counting.Limits.JetStreamLimits = jwt.JetStreamLimits{
		MemoryStorage: jwt.NoLimit, DiskStorage: jwt.NoLimit, Streams: jwt.NoLimit, Consumer: jwt.NoLimit,
	}
	config = fmt.Sprintf("operator: %s\nsystem_account: %s\nresolver: MEMORY\nresolver_preload: {%s: %s, %s: %s}\n",
		encode(jwt.NewOperatorClaims(publicKey(tb, operator)), operator),
		publicKey(tb, system),
		publicKey(tb, system), encode(jwt.NewAccountClaims(publicKey(tb, system)), operator),
		publicKey(tb, account), encode(counting, operator))

	user := newNkey(tb, nkeys.CreateUser)
	seed, err := user.Seed()
	if err != nil {
		tb.Fatal(err)
	}
	creds, err := jwt.FormatUserConfig(encode(jwt.NewUserClaims(publicKey(tb, user)), account), seed)
	if err != nil {
		tb.Fatal(err)
	}
	return config, writeSecret(tb, filepath.Join(tb.TempDir(), "user.creds"), creds)
}

func newNkey(tb testing.TB, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	tb.Helper()
	key, err := create()
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func publicKey(tb testing.TB, key nkeys.KeyPair) string {
	tb.Helper()
	public, err := key.PublicKey()
	if err != nil {
		tb.Fatal(err)
	}
	return public
}
