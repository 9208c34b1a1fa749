package daemon

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

// A running daemon's log shows more and less as it is asked to, and what the Kubernetes libraries say with it.
func TestVerbosity(t *testing.T) {
	var out bytes.Buffer
	o := &logOptions{style: styleText, daemon: "d"}
	log := o.logger(&out)
	t.Cleanup(func() { o.setVerbosity(0) })
	put := func(text string) int {
		w := httptest.NewRecorder()
		o.serveVerbosity(w, httptest.NewRequest(http.MethodPut, VerbosityPath, strings.NewReader(text)))
		return w.Code
	}
	says := func() string {
		out.Reset()
		log.Info("ours at 0")
		log.Debug("ours at 4")
		klog.V(4).Info("theirs at 4")
		klog.V(6).Info("theirs at 6")
		klog.Flush()
		var said []string
		for line := range strings.Lines(out.String()) {
			_, text, _ := strings.Cut(line, `msg="`)
			text, _, _ = strings.Cut(text, `"`)
			said = append(said, text)
		}
		return strings.Join(said, ", ")
	}
	for _, step := range []struct{ put, want string }{
		{"0", "ours at 0"},
		{"3", "ours at 0"},
		{"4\n", "ours at 0, ours at 4, theirs at 4"},
		{"6", "ours at 0, ours at 4, theirs at 4, theirs at 6"},
		{"0", "ours at 0"},
	} {
		if code := put(step.put); code != http.StatusOK {
			t.Errorf("PUT %q: %d", step.put, code)
		}
		if got := says(); got != step.want {
			t.Errorf("at %q: %q, want %q", step.put, got, step.want)
		}
	}
	for _, bad := range []string{"", "x", "-1", "4294967296", strings.Repeat("0", 100)} {
		if code := put(bad); code != http.StatusBadRequest {
			t.Errorf("PUT %q: %d, want %d", bad, code, http.StatusBadRequest)
		}
	}
}
