package ui

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/feed"
	"kubelot.dev/cli/internal/why"
)

const (
	// pictureEvery is how often an open page gets a picture. A person sees no more, and the node has other work.
	pictureEvery = time.Second
	// slowest is how long a browser may take for one answer.
	slowest = 10 * time.Second
)

// model is what the page is drawn from: live.Model.
type model interface {
	Take(in live.Input)
	Picture(now time.Time) live.Picture
	Why(ref topic.Ref, now time.Time) (why.Answer, bool)
}

// Server serves one page.
type Server struct {
	feed  feed.Feed
	model model
	guard *guard

	pictures  *latest
	watchers  atomic.Int64 // open pages
	opened    chan struct{}
	questions chan question
}

// New makes a server of what the feed says.
func New(from feed.Feed) *Server { return newServer(from, live.New()) }

func newServer(from feed.Feed, m model) *Server {
	s := &Server{
		feed: from, model: m, pictures: newLatest(), opened: make(chan struct{}, 1), questions: make(chan question),
	}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(files()))
	mux.HandleFunc("GET /events", s.events)
	mux.HandleFunc("GET /pod", s.pod)
	s.guard = newGuard(mux)
	return s
}

// URL is the address that opens the page, once, on a server that listens there.
func (s *Server) URL(address net.Addr) string {
	query := url.Values{"token": {s.guard.token}}
	return (&url.URL{Scheme: "http", Host: address.String(), Path: "/", RawQuery: query.Encode()}).String()
}

// Serve answers until ctx ends, and then tells open pages.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() { s.run(ctx) })
	web := &http.Server{
		Handler: s.guard, ReadHeaderTimeout: slowest, IdleTimeout: time.Minute,
		BaseContext: func(net.Listener) context.Context { return ctx },
		// What a browser does wrong is no news for a person at the terminal.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	running.Go(func() {
		<-ctx.Done()
		// The context of the requests has ended with ctx, so this waits for the last words to open pages.
		limited, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer done()
		if web.Shutdown(limited) != nil {
			_ = web.Close()
		}
	})
	err := web.Serve(listener)
	cancel()
	running.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("serve the page: %w", err)
}

// question is what an open page asks of the model's owner.
type question struct {
	uid    string
	answer chan<- podDetail
}

// run owns the model.
func (s *Server) run(ctx context.Context) {
	inputs := s.feed.Inputs
	tick := time.NewTicker(pictureEvery)
	defer tick.Stop()
	for {
		select {
		case in, ok := <-inputs:
			if !ok {
				inputs = nil // the end of a recording; the page stays
				continue
			}
			s.model.Take(in)
		case <-tick.C:
			s.draw()
		case <-s.opened:
			s.draw()
		case q := <-s.questions:
			now := s.feed.Now()
			q.answer <- detailOf(s.model, s.model.Picture(now), q.uid, now)
		case <-ctx.Done():
			return
		}
	}
}

// draw makes a picture if anybody looks.
func (s *Server) draw() {
	if s.watchers.Load() == 0 {
		return
	}
	data, err := json.Marshal(pageOf(s.model.Picture(s.feed.Now())))
	if err != nil {
		// Every field is a plain value. A page that stands still shows from when it is.
		return
	}
	s.pictures.set(data)
}

// events is the stream of pictures.
func (s *Server) events(w http.ResponseWriter, r *http.Request) {
	s.watchers.Add(1)
	defer s.watchers.Add(-1)
	w.Header().Set("Content-Type", "text/event-stream")
	control := http.NewResponseController(w)
	send := func(event string, data []byte) error {
		if err := control.SetWriteDeadline(time.Now().Add(slowest)); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data); err != nil {
			return err
		}
		return control.Flush()
	}
	_, changed := s.pictures.get() // the picture before this page was opened may be old
	select {
	case s.opened <- struct{}{}:
	default:
	}
	for {
		select {
		case <-r.Context().Done():
			// Either the browser has gone, or the server ends.
			_ = send("end", []byte("{}"))
			return
		case <-changed:
		}
		var picture []byte
		picture, changed = s.pictures.get()
		if send("picture", picture) != nil {
			return
		}
	}
}

// pod answers how one pod has started, and why it is as it is.
func (s *Server) pod(w http.ResponseWriter, r *http.Request) {
	answer := make(chan podDetail, 1)
	select {
	case s.questions <- question{uid: r.URL.Query().Get("uid"), answer: answer}:
	case <-r.Context().Done():
		return
	}
	var detail podDetail
	select {
	case detail = <-answer:
	case <-r.Context().Done():
		return
	}
	if detail.UID == "" {
		http.Error(w, "this pod isn't on the node any more", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	// A browser that has gone needs no answer.
	_ = json.NewEncoder(w).Encode(detail)
}
