package e2e

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/test/e2e/kit"
	"kubelot.dev/test/testbed/node"
)

// manifests is a server of static pods.
type manifests struct {
	mu    sync.Mutex
	code  int
	body  string
	asked int
}

func (m *manifests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Header.Get("X-Node") != kit.NodeName {
		http.Error(w, "who are you?", http.StatusForbidden)
		return
	}
	m.asked++
	w.WriteHeader(m.code)
	_, _ = w.Write([]byte(m.body))
}

// serve changes the answer and waits until the node has asked for it twice, so that the first one has been worked on.
func (m *manifests) serve(t *testing.T, code int, body string) {
	t.Helper()
	m.mu.Lock()
	m.code, m.body, m.asked = code, body, 0
	m.mu.Unlock()
	kit.Eventually(t, "the node to read its manifests", func() error {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.asked < 2 {
			return fmt.Errorf("it asked %d times", m.asked)
		}
		return nil
	})
}

// complaints are podsync's lines about the URL in the node's log.
func complaints(own *kit.Bed, url string) (lines []string) {
	log, _ := os.ReadFile(own.Node.LogPath())
	for line := range strings.Lines(string(log)) {
		if strings.Contains(line, "daemon=podsync") && strings.Contains(line, url) {
			lines = append(lines, line)
		}
	}
	return lines
}

// Static pods from a URL: they come, change and go with the answer; an answer that is broken or none changes nothing
// and is told of once.
func TestManifestURL(t *testing.T) {
	t.Parallel()
	own := kit.StartWithoutNode(t)
	m := &manifests{code: http.StatusOK}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	ns := own.Namespace(t)
	list := func(pods ...string) string {
		return "apiVersion: v1\nkind: PodList\nitems:\n" + strings.Join(pods, "")
	}
	item := func(name, colour string) string {
		return fmt.Sprintf("- {apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: %s}, spec: "+
			"{terminationGracePeriodSeconds: 1, "+
			"containers: [{name: app, image: 'busybox:1.36', command: [sleep, '10000'], env: [{name: COLOUR, value: %s}]}]}}\n",
			name, ns.Name, colour)
	}
	m.body = list(item("one", "red"), item("two", "red"))
	if err := own.StartNode(t.Context(), node.Kubelot, "--manifest-url="+server.URL, "--manifest-url-header=X-Node:"+
		kit.NodeName, "--http-check-frequency=300ms"); err != nil {
		t.Fatal(err)
	}
	one, two := ns.Running("one-"+kit.NodeName), ns.Running("two-"+kit.NodeName)
	if one.Annotations["kubernetes.io/config.source"] != "http" || one.Annotations[corev1.MirrorPodAnnotationKey] == "" {
		t.Errorf("annotations of the mirror pod: %v", one.Annotations)
	}

	m.serve(t, http.StatusOK, list(item("one", "blue"), item("two", "red")))
	changed := ns.Wait(one.Name, "its new version", func(p *corev1.Pod) bool { return p.UID != one.UID && kit.Ready(p) })
	ns.Equal(changed, "app", `echo "$COLOUR"`, "blue")

	for _, bad := range []struct {
		code       int
		body, says string
	}{
		{http.StatusOK, "{]", "it is not a Kubernetes object"},
		{http.StatusOK, "apiVersion: v1\nkind: Pod\nmetadata: {name: bad}\nspec: {containers: 7}\n", "it can't be decoded"},
		{http.StatusOK, list(item("one", "blue"), item("one", "green")), "rename one"},
		{http.StatusInternalServerError, "oh", "500 Internal Server Error"},
	} {
		m.serve(t, bad.code, bad.body)
		m.serve(t, bad.code, bad.body)
		var told []string
		kit.Eventually(t, "the node to tell of the answer "+bad.body, func() error {
			told = complaints(own, server.URL)
			if len(told) == 0 || !strings.Contains(told[len(told)-1], bad.says) {
				return fmt.Errorf("it says %q; want %q last", told, bad.says)
			}
			return nil
		})
		// What it can't fetch in time it tells of too, and of the answer again after that.
		if len(told) > 1 && strings.Contains(told[len(told)-2], bad.says) {
			t.Errorf("it tells of the same answer twice: %q", told)
		}
	}
	for was, is := range map[*corev1.Pod]*corev1.Pod{changed: ns.Running(one.Name), two: ns.Running(two.Name)} {
		if a, b := kit.Status(was, "app"), kit.Status(is, "app"); a.ContainerID != b.ContainerID || is.UID != was.UID {
			t.Errorf("pod %s ran in %s and runs in %s", was.Name, a.ContainerID, b.ContainerID)
		}
	}

	m.serve(t, http.StatusOK, list(item("two", "red")))
	ns.Gone(changed)
	m.serve(t, http.StatusOK, "")
	ns.Gone(two)
	kit.Eventually(t, "the node to be clean", func() error { return own.Clean(t.Context()) })
}
