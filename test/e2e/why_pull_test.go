package e2e

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"kubelot.dev/test/e2e/kit"
)

// slowRegistry is a registry on loopback with the image slow/image:1, whose only layer has 20 MiB, of which it gives
// five. The rest doesn't come before the test's end.
func slowRegistry(t *testing.T) (addr string) {
	t.Helper()
	const size, given = 20 << 20, 5 << 20
	layer := make([]byte, size)
	_, _ = rand.Read(layer) // it has no errors
	config := `{"architecture":"amd64","os":"linux","rootfs":{"type":"layers","diff_ids":["` + digest(layer) + `"]}}`
	manifest := fmt.Sprintf(`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",`+
		`"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":%q,"size":%d},`+
		`"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":%q,"size":%d}]}`,
		digest([]byte(config)), len(config), digest(layer), size)
	over := make(chan struct{})
	answer := func(kind, text string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Docker-Content-Digest", digest([]byte(text)))
			http.ServeContent(w, r, "", time.Time{}, strings.NewReader(text))
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/v2/{$}", answer("application/json", "{}"))
	for _, tag := range []string{"1", digest([]byte(manifest))} {
		mux.HandleFunc("/v2/slow/image/manifests/"+tag, answer("application/vnd.oci.image.manifest.v1+json", manifest))
	}
	mux.HandleFunc("/v2/slow/image/blobs/"+digest([]byte(config)), answer("application/octet-stream", config))
	mux.HandleFunc("/v2/slow/image/blobs/"+digest(layer), func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", fmt.Sprint(size))
		if r.Method == http.MethodHead {
			return
		}
		if _, err := bytes.NewReader(layer[:given]).WriteTo(w); err != nil {
			return // the runtime has given up
		}
		w.(http.Flusher).Flush()
		select {
		case <-over:
		case <-r.Context().Done():
		}
	})
	server := httptest.NewServer(mux)
	t.Cleanup(func() {
		close(over)
		server.Close()
	})
	return strings.TrimPrefix(server.URL, "http://")
}

func digest(data []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(data)) }

// A person learns how far a pull is: containerd tells it, though CRI doesn't.
func TestWhyPullProgress(t *testing.T) {
	bed.NotCRIO(t, "it doesn't say how much of an image it has")
	t.Parallel()
	registry := slowRegistry(t)
	if err := bed.CRI.UseRegistry(registry, false); err != nil {
		t.Fatal(err)
	}
	image := registry + "/slow/image:1"
	ns := bed.Namespace(t)
	ns.Apply(pod("pulling", `  containers: [{name: app, image: "`+image+`"}]`+"\n"))
	says(t, ns, "pulling", "container app can't start yet: its image "+image+" has been pulled for ",
		"; 5.0 of 20.0 MiB are here.", "waits for: the rest of the image from the registry ")

	// So does who watches, and a script.
	term := inTerminal(t, 200, 30, "top", "--run-dir="+bed.Bed.Path("run"))
	term.shows([]string{"1 Pods"}, nil)
	term.types("/" + ns.Name + "\r")
	term.shows([]string{"pulling", "5.0 of 20.0 MiB are here"}, nil)
	kit.Eventually(t, "the pull in the picture of kubelot top", func() error {
		return topShowsPull(t, ns.Name, 5<<20, 20<<20)
	})
}

// topShowsPull is an error unless the only pod of the namespace waits for an image of which this much is there.
func topShowsPull(t *testing.T, namespace string, done, total int64) error {
	t.Helper()
	out, stderr, code := kubelot(t, "", "top", "-o", "json")
	var picture struct {
		Pods []struct {
			Namespace string `json:"namespace"`
			Answer    struct {
				Causes []struct {
					Pull struct {
						Done  int64 `json:"doneBytes"`
						Total int64 `json:"totalBytes"`
					} `json:"pull"`
				} `json:"causes"`
			} `json:"answer"`
		} `json:"pods"`
	}
	if err := json.Unmarshal([]byte(out), &picture); err != nil || code != 0 {
		return fmt.Errorf("exit code %d, %w: %s", code, err, stderr)
	}
	for _, p := range picture.Pods {
		for _, c := range p.Answer.Causes {
			if p.Namespace == namespace && c.Pull.Done == done && c.Pull.Total == total {
				return nil
			}
		}
	}
	return fmt.Errorf("no pod of %s has %d of %d bytes:\n%s", namespace, done, total, out)
}
