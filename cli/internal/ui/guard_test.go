package ui

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// behind is what the guard guards in these tests.
var behind = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	_, _ = w.Write([]byte("the page at " + r.URL.Path))
})

// answered is what the guard has answered.
type answered struct {
	status  int
	header  http.Header
	cookies []*http.Cookie
	text    string
}

// asked is the guard's answer to a request that may be changed before.
func asked(g *guard, path string, change func(*http.Request)) answered {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8900"+path, nil)
	if change != nil {
		change(r)
	}
	w := httptest.NewRecorder()
	g.ServeHTTP(w, r)
	answer := w.Result()
	defer answer.Body.Close()
	return answered{status: w.Code, header: answer.Header, cookies: answer.Cookies(), text: w.Body.String()}
}

func TestTheTokenOpensThePageOnce(t *testing.T) {
	g := newGuard(behind)
	query := "/?" + url.Values{"token": {g.token}}.Encode()
	for name, path := range map[string]string{"none": "/", "wrong": "/?token=x", "empty": "/?token="} {
		if answer := asked(g, path, nil); answer.status != http.StatusForbidden || len(answer.cookies) > 0 {
			t.Errorf("token %s: %d, cookies %v", name, answer.status, answer.cookies)
		}
	}
	// A program that looks whether a link works doesn't take the token away.
	head := asked(g, query, func(r *http.Request) { r.Method = http.MethodHead })
	if head.status != http.StatusForbidden {
		t.Errorf("HEAD: %d", head.status)
	}
	answer := asked(g, query, func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	if answer.status != http.StatusOK || len(answer.cookies) != 1 || !strings.Contains(answer.text, g.path) {
		t.Fatalf("the token: %d, cookies %v", answer.status, answer.cookies)
	}
	c := answer.cookies[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Path != g.path || c.Domain != "" {
		t.Errorf("the cookie is %v", c)
	}
	if again := asked(g, query, nil); again.status != http.StatusForbidden || len(again.cookies) > 0 {
		t.Errorf("the token, once more: %d, cookies %v", again.status, again.cookies)
	}
	page := asked(g, g.path+"events", func(r *http.Request) { r.AddCookie(c) })
	if page.status != http.StatusOK || !strings.Contains(page.text, "the page at /events") {
		t.Errorf("with the cookie: %s", page.text)
	}
}

func TestOnlyThePageItselfReads(t *testing.T) {
	g := newGuard(behind)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	method := func(name string) func(*http.Request) { return func(r *http.Request) { r.Method = name } }
	for name, c := range map[string]struct {
		path   string
		change func(*http.Request)
		status int
	}{
		"as it should be":      {status: http.StatusOK},
		"another port":         {change: host("localhost:1234"), status: http.StatusOK},
		"IPv6":                 {change: host("[::1]:8900"), status: http.StatusOK},
		"the page's own fetch": {change: header("Sec-Fetch-Site", "same-origin"), status: http.StatusOK},
		"typed by hand":        {change: header("Sec-Fetch-Site", "none"), status: http.StatusOK},
		"own origin":           {change: header("Origin", "http://127.0.0.1:8900"), status: http.StatusOK},
		"HEAD":                 {change: method(http.MethodHead), status: http.StatusOK},

		"rebound name":     {change: host("evil.example:8900"), status: http.StatusForbidden},
		"a name like ours": {change: host("localhost.evil.example"), status: http.StatusForbidden},
		"another address":  {change: host("10.0.0.1:8900"), status: http.StatusForbidden},
		"no host":          {change: host(""), status: http.StatusForbidden},
		"another origin":   {change: header("Origin", "http://evil.example"), status: http.StatusForbidden},
		"hidden origin":    {change: header("Origin", "null"), status: http.StatusForbidden},
		"another port's page": {
			change: header("Origin", "http://127.0.0.1:1"), status: http.StatusForbidden,
		},
		"another site":   {change: header("Sec-Fetch-Site", "cross-site"), status: http.StatusForbidden},
		"a sibling site": {change: header("Sec-Fetch-Site", "same-site"), status: http.StatusForbidden},
		"wrong cookie":   {change: header("Cookie", cookieName+"=x"), status: http.StatusForbidden},
		"no cookie": {
			change: func(r *http.Request) { r.Header.Del("Cookie") }, status: http.StatusForbidden,
		},
		"POST":           {change: method(http.MethodPost), status: http.StatusMethodNotAllowed},
		"DELETE":         {change: method(http.MethodDelete), status: http.StatusMethodNotAllowed},
		"another path":   {path: "/events", status: http.StatusForbidden},
		"POST of a name": {change: func(r *http.Request) { r.Method, r.Host = http.MethodPost, "x" }, status: 405},
	} {
		t.Run(name, func(t *testing.T) {
			path := c.path
			if path == "" {
				path = g.path
			}
			answer := asked(g, path, func(r *http.Request) {
				r.AddCookie(&http.Cookie{Name: cookieName, Value: g.cookie})
				if c.change != nil {
					c.change(r)
				}
			})
			if answer.status != c.status {
				t.Errorf("%d, want %d", answer.status, c.status)
			}
			if answer.header.Get("Content-Security-Policy") != policy || answer.header.Get("Cache-Control") != "no-store" {
				t.Errorf("headers %v", answer.header)
			}
		})
	}
}

func TestTwoServersShareNothing(t *testing.T) {
	a, b := newGuard(behind), newGuard(behind)
	if a.token == b.token || a.cookie == b.cookie || a.path == b.path || a.token == a.cookie {
		t.Errorf("%+v %+v", a, b)
	}
}
