package heedtest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"time"
)

// Certificates are valid from 1970 to 9999, because bubbles of testing/synctest begin in 2000
// and their clocks may advance by years.
var (
	validFrom  = time.Unix(0, 0)
	validUntil = time.Date(9999, time.December, 31, 23, 59, 59, 0, time.UTC)
)

// An authority issues the certificates of one server: one for each connection, for the host
// that the client names.
type authority struct {
	key  *ecdsa.PrivateKey // also of the certificates that it issues
	cert *x509.Certificate
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key}
	a.cert = &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "heedtest"},
		NotBefore:             validFrom,
		NotAfter:              validUntil,
		KeyUsage:              x509.KeyUsageCertSign,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	der, err := a.sign(a.cert)
	if err != nil {
		return nil, err
	}
	a.cert, err = x509.ParseCertificate(der)
	return a, err
}

// sign returns the encoded certificate of the template, signed by a.
func (a *authority) sign(template *x509.Certificate) ([]byte, error) {
	return x509.CreateCertificate(rand.Reader, template, a.cert, a.key.Public(), a.key)
}

// server returns the settings of a server that speaks the protocol and has a certificate for
// every host name. A client that connects to an IP address names no host; its certificate is
// for the loopback addresses.
func (a *authority) server(protocol string) *tls.Config {
	return &tls.Config{
		NextProtos: []string{protocol},
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			template := &x509.Certificate{
				SerialNumber: big.NewInt(2),
				NotBefore:    validFrom,
				NotAfter:     validUntil,
				KeyUsage:     x509.KeyUsageDigitalSignature,
				ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
				IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
			}
			if hello.ServerName != "" {
				template.DNSNames = []string{hello.ServerName}
			}
			der, err := a.sign(template)
			return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.key}, err
		},
	}
}

// client returns the settings of a client that trusts a and nothing else.
func (a *authority) client() *tls.Config {
	roots := x509.NewCertPool()
	roots.AddCert(a.cert)
	return &tls.Config{RootCAs: roots}
}
