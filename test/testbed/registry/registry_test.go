package registry_test

import (
	"net/http"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/v1/empty"

	"kubelot.dev/test/testbed/images"
	"kubelot.dev/test/testbed/registry"
)

func TestRegistry(t *testing.T) {
	r, err := registry.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	r.Require("alice", "secret")
	ref, err := r.Push(t.Context(), images.Image{Ref: "docker.io/library/thing:1", Image: empty.Image})
	if err != nil {
		t.Fatal(err)
	}
	if want := r.Addr + "/library/thing:1"; ref != want {
		t.Errorf("pushed as %s, want %s", ref, want)
	}
	manifest := "http://" + r.Addr + "/v2/library/thing/manifests/1"
	if code := get(t, manifest, "", ""); code != http.StatusUnauthorized {
		t.Errorf("without a password: %d, want 401", code)
	}
	if code := get(t, manifest, "alice", "wrong"); code != http.StatusUnauthorized {
		t.Errorf("with a wrong password: %d, want 401", code)
	}
	if r.Pulls() != 0 {
		t.Errorf("%d pulls counted before one succeeded", r.Pulls())
	}
	r.Delay(100 * time.Millisecond)
	begin := time.Now()
	if code := get(t, manifest, "alice", "secret"); code != http.StatusOK {
		t.Errorf("with the password: %d, want 200", code)
	}
	if took := time.Since(begin); took < 100*time.Millisecond {
		t.Errorf("answered after %v, want a delay of 100ms", took)
	}
	r.Refuse(true)
	if code := get(t, manifest, "alice", "secret"); code != http.StatusServiceUnavailable {
		t.Errorf("while it refuses: %d, want 503", code)
	}
	if r.Pulls() != 1 {
		t.Errorf("%d pulls counted, want 1", r.Pulls())
	}
}

func get(t *testing.T, url, user, password string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if user != "" {
		req.SetBasicAuth(user, password)
	}
	answer, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	return answer.StatusCode
}
