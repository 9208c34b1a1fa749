package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"kubelot.dev/bus/topic"
	"kubelot.dev/cli/internal/live"
	"kubelot.dev/cli/internal/live/feed"
	"kubelot.dev/cli/internal/pods"
	"kubelot.dev/cli/internal/why"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// onePod is a model that knows one pod, and counts.
type onePod struct{ taken, pictures atomic.Int64 }

var web = topic.Ref{Namespace: "default", Name: "web", UID: "u1"}

func (m *onePod) Take(live.Input) { m.taken.Add(1) }

func (m *onePod) Picture(now time.Time) live.Picture {
	m.pictures.Add(1)
	return live.Picture{At: now, Synced: true, Pods: []live.Pod{{
		Row: pods.Row{Ref: web, Phase: "Pending"}, State: why.Waiting, Sentence: "<b>no image</b>",
		Answer: why.Answer{Ref: web, Sentence: "short"},
		Start:  live.Start{Begin: now.Add(-time.Second), Spans: []live.Span{{Stage: live.StageSandbox, From: now}}},
	}}}
}

func (m *onePod) Why(ref topic.Ref, _ time.Time) (why.Answer, bool) {
	return why.Answer{Ref: ref, Timeline: []why.Moment{{What: "create sandbox"}}}, ref == web
}

// served runs a server and returns a browser that has opened it, the page's address, and how to end it.
func served(t *testing.T, m model) (browser *http.Client, page string, end func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(feed.Feed{Inputs: make(chan live.Input), Now: time.Now}, m)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, listener) }()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	t.Cleanup(cancel)
	browser = &http.Client{Jar: jar, Transport: transport}
	answer, err := browser.Get(s.URL(listener.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	return browser, "http://" + listener.Addr().String() + s.guard.path, func() error {
		cancel()
		return <-done
	}
}

// got is the answer's status and text.
func got(t *testing.T, browser *http.Client, address string) (status int, text string) {
	t.Helper()
	answer, err := browser.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(data)
}

func TestAPageGetsPicturesAndItsEnd(t *testing.T) {
	browser, page, end := served(t, &onePod{})
	status, text := got(t, browser, page)
	if status != http.StatusOK || !strings.Contains(text, "<title>kubelot</title>") {
		t.Fatalf("the page: %d %s", status, text)
	}
	answer, err := browser.Get(page + "events")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Errorf("Content-Type %s", kind)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 1<<20)
	next := func() string {
		lines.Scan()
		return lines.Text()
	}
	if event := next(); event != "event: picture" {
		t.Fatalf("first %q", event)
	}
	// How a pod has started is on the pod's own page.
	var picture struct {
		Pods []struct {
			Name     string `json:"name"`
			Sentence string `json:"sentence"`
			State    string `json:"state"`
		} `json:"pods"`
		Contracts []flow `json:"contracts"`
	}
	if err := json.Unmarshal([]byte(strings.TrimPrefix(next(), "data: ")), &picture); err != nil {
		t.Fatal(err)
	}
	if len(picture.Pods) != 1 || picture.Pods[0].Name != "web" || picture.Pods[0].State != "waiting" ||
		picture.Pods[0].Sentence != "<b>no image</b>" || len(picture.Contracts) < 20 {
		t.Errorf("%+v", picture)
	}
	if err := end(); err != nil {
		t.Errorf("Serve: %v", err)
	}
	var last string
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "event: ") {
			last = lines.Text()
		}
	}
	if last != "event: end" {
		t.Errorf("the last event is %q, want the page's end", last)
	}
	if _, err := net.Dial("tcp", mustParse(t, page).Host); err == nil {
		t.Error("something still listens")
	}
}

func mustParse(t *testing.T, address string) *url.URL {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestAPodsPageHasItsStartAndTimeline(t *testing.T) {
	browser, page, end := served(t, &onePod{})
	status, text := got(t, browser, page+"pod?uid=u1")
	var detail podDetail
	if err := json.Unmarshal([]byte(text), &detail); status != http.StatusOK || err != nil {
		t.Fatalf("%d %v %s", status, err, text)
	}
	if detail.Name != "web" || len(detail.Start.Spans) != 1 || len(detail.Answer.Timeline) != 1 ||
		len(detail.Stages) == 0 || detail.At.IsZero() {
		t.Errorf("%+v", detail)
	}
	for _, uid := range []string{"u2", "", "../x"} {
		if status, _ := got(t, browser, page+"pod?uid="+url.QueryEscape(uid)); status != http.StatusNotFound {
			t.Errorf("pod %q: %d, want not found", uid, status)
		}
	}
	if err := end(); err != nil {
		t.Error(err)
	}
}

func TestNothingIsDrawnForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, inputs := &onePod{}, make(chan live.Input)
		s := newServer(feed.Feed{Inputs: inputs, Now: time.Now}, m)
		ctx, cancel := context.WithCancel(t.Context())
		go s.run(ctx)
		for range 3 {
			inputs <- live.Input{}
		}
		close(inputs)                            // as at the end of a recording
		time.Sleep(time.Minute + pictureEvery/2) // between two pictures
		if m.taken.Load() != 3 || m.pictures.Load() != 0 {
			t.Errorf("%d inputs taken, want 3; %d pictures that nobody sees", m.taken.Load(), m.pictures.Load())
		}
		s.watchers.Add(1)
		time.Sleep(10 * pictureEvery)
		synctest.Wait()
		if n := m.pictures.Load(); n != 10 {
			t.Errorf("%d pictures for a page that is open for 10 seconds", n)
		}
		cancel()
		synctest.Wait()
	})
}

var (
	reference = regexp.MustCompile(`(?:src|href)="([^"#]+)"|from "\./([^"]+)"`)
	elsewhere = regexp.MustCompile(`https?://[^"'\s]+|url\(`)
	inline    = regexp.MustCompile(`(?i)<style|\sstyle=|\son[a-z]+=|<script>|javascript:|innerHTML|eval\(`)
)

// What the page's policy forbids isn't in its files, and what they name is there.
func TestThePageNeedsNothingElse(t *testing.T) {
	page := files()
	count := 0
	err := fs.WalkDir(page, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		count++
		data, err := fs.ReadFile(page, name)
		if err != nil {
			return err
		}
		text := string(data)
		for _, found := range elsewhere.FindAllString(text, -1) {
			if found != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", name, found)
			}
		}
		if found := inline.FindString(text); found != "" {
			t.Errorf("%s has %q, which the policy forbids", name, found)
		}
		for _, m := range reference.FindAllStringSubmatch(text, -1) {
			if _, err := fs.Stat(page, m[1]+m[2]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for i, line := range strings.Split(text, "\n") {
			if len([]rune(line)) > 120 {
				t.Errorf("%s:%d has more than 120 columns", name, i+1)
			}
		}
		return nil
	})
	if err != nil || count < 12 {
		t.Errorf("%d files, %v", count, err)
	}
}
