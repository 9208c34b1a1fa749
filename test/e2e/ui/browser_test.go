package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// command is a `kubelot ui` that runs.
type command struct {
	runDir string
	url    string
	cmd    *exec.Cmd
	done   chan error
}

// serve starts the command for a crew and ends it with the test. It must end in order.
func serve(t *testing.T, runDir string) *command {
	t.Helper()
	c := &command{runDir: runDir, done: make(chan error, 1)}
	c.cmd = exec.Command(bed.Program("kubelot"), "ui", "-o", "json", "--run-dir", runDir)
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var failure strings.Builder
	c.cmd.Stderr = &failure
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var opened struct {
		URL  string    `json:"url"`
		Ends time.Time `json:"ends"`
	}
	err = json.NewDecoder(bufio.NewReader(out)).Decode(&opened)
	go func() { c.done <- c.cmd.Wait() }()
	t.Cleanup(func() {
		if err := c.end(); err != nil {
			t.Errorf("kubelot ui ended with %v: %s", err, failure.String())
		}
	})
	if err != nil || opened.Ends.IsZero() {
		t.Fatalf("kubelot ui prints no address: %v %s", err, failure.String())
	}
	c.url = opened.URL
	return c
}

// end is what Ctrl-C does. It may be called twice.
func (c *command) end() error {
	_ = c.cmd.Process.Signal(syscall.SIGINT) // it may have ended
	err := <-c.done
	c.done <- err
	return err
}

// again stops the command and starts another one. The address of the old one can be opened only once.
func (c *command) again(t *testing.T) {
	t.Helper()
	if err := c.end(); err != nil {
		t.Errorf("kubelot ui ended with %v", err)
	}
	*c = *serve(t, c.runDir)
}

// patience is for one thing on the page, on a machine that runs other suites besides.
const patience = 90 * time.Second

// tab is a browser with one page.
type tab struct {
	t    *testing.T
	ctx  context.Context
	host string

	mu       sync.Mutex
	troubles []string
}

// browse opens the page that a command serves, in a browser of its own. The test fails for each error on the console,
// and for each request to another host. Where the network changes meanwhile the command is started again.
func browse(t *testing.T, c *command, width, height int64) *tab {
	t.Helper()
	for deadline := time.Now().Add(patience); ; c.again(t) {
		b := launch(t, c)
		err := b.try(chromedp.EmulateViewport(width, height), chromedp.Navigate(c.url))
		if err == nil {
			b.loads()
			t.Cleanup(func() {
				b.mu.Lock()
				defer b.mu.Unlock()
				for _, trouble := range b.troubles {
					t.Errorf("in the browser: %s", trouble)
				}
			})
			return b
		}
		if !strings.Contains(err.Error(), networkChanged) || time.Now().After(deadline) {
			t.Fatal(err)
		}
		_ = chromedp.Cancel(b.ctx) // it ends with the test at the latest
	}
}

// launch starts a browser with an empty page.
func launch(t *testing.T, c *command) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.ExecPath(chromium(t)),
		chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-color-profile", "srgb"),
		chromedp.WSURLReadTimeout(patience))
	allocated, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(cancel)
	ctx, cancel := chromedp.NewContext(allocated, chromedp.WithBrowserOption(chromedp.WithDialTimeout(patience)))
	t.Cleanup(cancel)
	address, err := url.Parse(c.url)
	if err != nil {
		t.Fatal(err)
	}
	b := &tab{t: t, ctx: ctx, host: address.Host}
	// The browser ends with the context of what is done first, which therefore has no limit of its own.
	if err := chromedp.Run(ctx); err != nil {
		t.Fatal(err)
	}
	chromedp.ListenTarget(ctx, b.listen)
	return b
}

// chromium is the browser's path.
func chromium(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Fatal("there is no browser: apt-get install chromium, or name one in CHROMIUM")
	return ""
}

// networkChanged is why a browser has dropped a request.
const networkChanged = "net::ERR_NETWORK_CHANGED"

// loads waits until the page shows a picture. It reloads the page, as a person would, while it or its scripts haven't
// come.
func (b *tab) loads() {
	b.t.Helper()
	const failed, shown = `location.protocol == "chrome-error:"`,
		`Boolean(document.querySelector("#foot")?.innerText.includes("Picture of"))`
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); {
		b.until("an end of the loading", failed+` || document.readyState == "complete" && document.querySelector("#foot")`)
		for range 100 {
			if get[bool](b, shown) {
				return
			}
			time.Sleep(50 * time.Millisecond)
		}
		if !get[bool](b, failed+` || document.querySelector("#notice").innerText.includes("reload the page")`) {
			continue
		}
		if err := b.try(chromedp.Reload()); err != nil && !strings.Contains(err.Error(), networkChanged) {
			b.t.Fatal(err)
		}
	}
	b.until("the page", shown)
}

func (b *tab) listen(event any) {
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		if at, err := url.Parse(e.Request.URL); err != nil || at.Scheme != "data" && at.Host != b.host {
			b.trouble("a request to " + e.Request.URL)
		}
	case *runtime.EventExceptionThrown:
		b.trouble("an exception: " + e.ExceptionDetails.Error())
	case *runtime.EventConsoleAPICalled:
		if e.Type == runtime.APITypeError || e.Type == runtime.APITypeWarning {
			b.trouble(fmt.Sprintf("the console: %s %v", e.Type, e.Args))
		}
	case *log.EventEntryAdded:
		// Each pod that comes or goes changes the machine's network, and a browser then drops what it just loads.
		if (e.Entry.Level == log.LevelError || e.Entry.Level == log.LevelWarning) &&
			!strings.Contains(e.Entry.Text, networkChanged) {
			b.trouble(fmt.Sprintf("the log: %s %s", e.Entry.Text, e.Entry.URL))
		}
	}
}

func (b *tab) trouble(words string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !slices.Contains(b.troubles, words) {
		b.troubles = append(b.troubles, words)
	}
}

func (b *tab) do(actions ...chromedp.Action) {
	b.t.Helper()
	if err := b.try(actions...); err != nil {
		b.t.Fatal(err)
	}
}

func (b *tab) try(actions ...chromedp.Action) error {
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	return chromedp.Run(ctx, actions...)
}

// get is the value of an expression.
func get[T any](b *tab, expression string) (value T) {
	b.t.Helper()
	b.do(chromedp.Evaluate(expression, &value))
	return value
}

// until waits until the expression is true. The page may be on its way to another one: the address with the token goes
// on by itself.
func (b *tab) until(what, expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	for ctx.Err() == nil {
		var ok bool
		err := chromedp.Run(ctx, chromedp.Evaluate(fmt.Sprintf("Boolean(%s)", expression), &ok))
		if ok {
			return
		}
		if err != nil && ctx.Err() == nil && !leaving(err) {
			b.t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
	b.t.Fatalf("waited %v for %s; the page shows:\n%s", patience, what, get[string](b,
		"`${location.href} is ${document.readyState}\\n${document.body?.innerText}`"))
}

// leaving reports whether the page couldn't answer because it made way for the next one. Chromium gives all failures of
// its protocol one code.
func leaving(err error) bool {
	failure, ok := errors.AsType[*cdproto.Error](err)
	return ok && (strings.Contains(failure.Message, "navigated or closed") ||
		strings.Contains(failure.Message, "context was destroyed") || strings.Contains(failure.Message, "find context"))
}

// shows waits until the text is seen.
func (b *tab) shows(text string) {
	b.t.Helper()
	b.until(fmt.Sprintf("%q on the page", text), fmt.Sprintf("document.body.innerText.includes(%q)", text))
}

// goTo shows a view by its address.
func (b *tab) goTo(address string) {
	b.t.Helper()
	b.do(chromedp.Evaluate(fmt.Sprintf("location.hash = %q", address), nil))
}

// keys presses keys, one after the other.
func (b *tab) keys(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do(chromedp.KeyEvent(key))
	}
}

// focus is what has the focus, by its text or its label.
func (b *tab) focus() string {
	b.t.Helper()
	return get[string](b, `document.activeElement.getAttribute("aria-label") ?? document.activeElement.innerText ?? ""`)
}
