package source

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"kubelot.dev/bus/topic"
)

// The configured headers may be secret: they follow a redirect on the same server, and go to no other.
func TestURLHeadersStayWithTheServer(t *testing.T) {
	var mu sync.Mutex
	tokens := map[string]string{}
	note := func(name string, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		tokens[name] = r.Header.Get("X-Token") + r.Header.Get("Metadata-Flavor") + r.Header.Get("Authorization")
	}
	pod := []byte(yaml("web", "w:1"))
	var home *httptest.Server
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("other"+r.URL.Path, r)
		if r.URL.Path == "/back" {
			http.Redirect(w, r, home.URL+"/pod", http.StatusTemporaryRedirect)
			return
		}
		w.Write(pod)
	}))
	defer other.Close()
	home = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		note("home"+r.URL.Path, r)
		switch r.URL.Path {
		case "/moved":
			http.Redirect(w, r, "/pod", http.StatusMovedPermanently)
		case "/away":
			http.Redirect(w, r, other.URL+"/pod", http.StatusFound)
		case "/there":
			http.Redirect(w, r, other.URL+"/back", http.StatusFound)
		case "/circle":
			http.Redirect(w, r, "/circle", http.StatusFound)
		default:
			w.Write(pod)
		}
	}))
	defer home.Close()
	for path, want := range map[string]map[string]string{
		"/pod":   {"home/pod": "abc"},
		"/moved": {"home/moved": "abc", "home/pod": "abc"},
		"/away":  {"home/away": "abc", "other/pod": ""},
		"/there": {"home/there": "abc", "other/back": "", "home/pod": "abc"},
	} {
		clear(tokens)
		u := NewURL(URLConfig{URL: home.URL + path, NodeName: "n", Header: http.Header{
			"X-Token": {"a"}, "Metadata-Flavor": {"b"}, "Authorization": {"c"},
		}})
		r := &urlRun{cfg: u.cfg, problems: newProblems(topic.SourceHTTP, nil)}
		if set, _ := r.poll(context.Background()); set.Err != nil || images(set) != "w:1" {
			t.Errorf("%s: %+v", path, set)
		}
		u.cfg.Client.CloseIdleConnections()
		for at, token := range tokens {
			if w, ok := want[at]; !ok || w != token {
				t.Errorf("%s: %s got the headers %q; want %q", path, at, token, w)
			}
		}
		if len(tokens) != len(want) {
			t.Errorf("%s: asked %v", path, tokens)
		}
	}
	u := NewURL(URLConfig{URL: home.URL + "/circle", NodeName: "n"})
	defer u.cfg.Client.CloseIdleConnections()
	r := &urlRun{cfg: u.cfg, problems: newProblems(topic.SourceHTTP, nil)}
	if set, _ := r.poll(context.Background()); set.Err == nil {
		t.Error("a redirect in a circle has no end")
	}
}
