package ui

import (
	"crypto/rand"
	"crypto/subtle"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// cookieName is that of the cookie that a browser gets for the token.
const cookieName = "kubelot-ui"

// policy allows what the server has itself, and neither inline scripts nor markup made of strings.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'"

// guard lets one browser in, which may read.
type guard struct {
	next http.Handler
	// path is below which the page is. No other server of this host, on another port, is sent a cookie of such a path,
	// and the pages of two servers don't take each other's.
	path   string
	cookie string

	mu    sync.Mutex
	token string // empty once it was taken
}

func newGuard(next http.Handler) *guard {
	return &guard{next: next, path: "/" + rand.Text() + "/", cookie: rand.Text(), token: rand.Text()}
}

func (g *guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	secure(w.Header())
	switch {
	case !slices.Contains([]string{http.MethodGet, http.MethodHead}, r.Method):
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "this page is for reading", http.StatusMethodNotAllowed)
	case !local(r.Host):
		http.Error(w, "open this page as 127.0.0.1 or localhost", http.StatusForbidden)
	case r.URL.Path == "/":
		g.open(w, r)
	case !fromHere(r) || !g.known(r) || !strings.HasPrefix(r.URL.Path, g.path):
		http.Error(w, refusal, http.StatusForbidden)
	default:
		http.StripPrefix(strings.TrimSuffix(g.path, "/"), g.next).ServeHTTP(w, r)
	}
}

const refusal = "This page opens once, with the address that kubelot ui has printed. Run it again for a new address."

// open takes the token. The answer is a page that goes on by itself: the browser doesn't send a strict cookie along a
// redirect if the address was clicked in another page.
func (g *guard) open(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet || !g.take(r.URL.Query().Get("token")) {
		http.Error(w, refusal, http.StatusForbidden)
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: cookieName, Value: g.cookie, Path: g.path, HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	fmt.Fprintf(w, `<!doctype html><html lang="en"><title>kubelot</title><link rel="icon" href="%[1]sicon.svg">`+
		`<meta http-equiv="refresh" content="0; url=%[1]s"><p><a href="%[1]s">Open the page</a></p></html>`, g.path)
}

// take reports whether the token is right, and has it never be right again.
func (g *guard) take(token string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.token == "" || !same(token, g.token) {
		return false
	}
	g.token = ""
	return true
}

// known reports whether the request has the cookie.
func (g *guard) known(r *http.Request) bool {
	return slices.ContainsFunc(r.CookiesNamed(cookieName), func(c *http.Cookie) bool { return same(c.Value, g.cookie) })
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// local reports whether the name in a Host header is this machine's own. The port may be another one: that of a tunnel.
func local(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return ip != nil && ip.IsLoopback()
}

// fromHere reports whether the page itself, or the person, has made the request.
func fromHere(r *http.Request) bool {
	if origin := r.Header.Get("Origin"); origin != "" && origin != "http://"+r.Host {
		return false
	}
	return slices.Contains([]string{"", "none", "same-origin"}, r.Header.Get("Sec-Fetch-Site"))
}

// secure has the browser keep the page to itself.
func secure(header http.Header) {
	for name, value := range map[string]string{
		"Content-Security-Policy":      policy,
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
		"Referrer-Policy":              "no-referrer",
		"X-Content-Type-Options":       "nosniff",
		"X-Frame-Options":              "DENY",
		"Cache-Control":                "no-store",
	} {
		header.Set(name, value)
	}
}
