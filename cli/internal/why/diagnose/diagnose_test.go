package diagnose

import (
	"regexp"
	"strings"
	"testing"
)

func all() map[string][]rule {
	return map[string][]rule{
		"pulls": pulls, "starts": starts, "configs": configs, "sandboxes": sandboxes, "runtimes": runtimes,
		"volumes": volumes, "claims": claims, "plugins": plugins,
		"unmounts": unmounts, "ends": ends, "probes": probes, "images": images,
	}
}

// A rule whose text asks for a group that its expression lacks would show {2} to a person.
func TestRulesFillInTheirTexts(t *testing.T) {
	known := regexp.MustCompile(`\{(ns|pod|container|image|volume|registry)\}`)
	for list, rules := range all() {
		for _, r := range rules {
			groups := regexp.MustCompile(r.match).NumSubexp()
			for _, text := range []string{r.why, r.waits, r.do} {
				for _, m := range regexp.MustCompile(`\{([^}]*)\}`).FindAllStringSubmatch(text, -1) {
					number := len(m[1]) == 1 && m[1][0] >= '0' && int(m[1][0]-'0') <= groups
					if !number && !known.MatchString(m[0]) {
						t.Errorf("%s, %s: %s has no value in %q", list, r.kind, m[0], text)
					}
				}
				if strings.HasSuffix(text, ".") || text != strings.TrimSpace(text) {
					t.Errorf("%s, %s: %q must be a clause", list, r.kind, text)
				}
			}
			if r.kind == "" || r.why == "" && list != "images" {
				t.Errorf("%s: a rule without a kind or a text: %+v", list, r)
			}
			if r.do == "" && r.waits == "" && list != "probes" {
				t.Errorf("%s, %s: nothing to do and nothing to wait for", list, r.kind)
			}
		}
	}
}

func TestRegistry(t *testing.T) {
	for image, want := range map[string]string{
		"nginx": "docker.io", "library/nginx:1": "docker.io", "ghcr.io/a/b@sha256:0": "ghcr.io",
		"localhost/x": "localhost", "host:5000/x": "host:5000", "": "docker.io",
	} {
		if got := Registry(image); got != want {
			t.Errorf("%q is of %q; want %q", image, got, want)
		}
	}
}

func TestInnermost(t *testing.T) {
	long := strings.Repeat("x", enough)
	for text, want := range map[string]string{
		"plain": "plain", " \n": "",
		"rpc error: code = Unknown desc = failed to create containerd task: it is so": "it is so",
		`MountVolume.SetUp failed for volume "v" : why`:                               "why",
		long + ": the end": "the end",
		long:               long,
	} {
		if got := Innermost(text); got != want {
			t.Errorf("%q yields %q; want %q", text, got, want)
		}
	}
}

// What nobody knows is shown and not guessed.
func TestUnknown(t *testing.T) {
	names := Names{Namespace: "default", Pod: "web", Container: "app", Image: "host:5000/x:1", Volume: "v"}
	for kind, f := range map[string]Finding{
		"image-pull-fails": Pull("odd", names), "runtime-refuses": Start("odd", names), "spec-unusable": Config("odd", names),
		"sandbox-fails": Sandbox("odd", names), "volume-fails": Volume("odd", names), "unmount-fails": Unmount("odd", names),
		"probe-fails": Probe("odd", names), "allocation-waits": Allocation("odd", names),
		"runtime-fails": Runtime("odd"),
	} {
		if f.Kind != kind || f.Why != "odd" || strings.Contains(f.Do, "{") {
			t.Errorf("%s: %+v", kind, f)
		}
	}
	if f, ok := End("", "message", names); ok {
		t.Errorf("a pod that ended by itself: %+v", f)
	}
	if f, ok := End("Odd", "", names); !ok || f.Why != "Odd" {
		t.Errorf("an unknown reason: %+v, %v", f, ok)
	}
}

// The more special rule comes first.
func TestOrder(t *testing.T) {
	for text, want := range map[string]string{
		`pull access denied, repository does not exist or may require authorization: authorization failed`: "image-denied",
		`no match for platform in manifest: not found`:                                                     "image-other-platform",
		`dial tcp: lookup r.example on 10.0.0.2:53: read udp 10.0.0.1:4->10.0.0.2:53: i/o timeout`:         "registry-dns",
		`net/http: TLS handshake timeout`:                                                                  "registry-timeout",
		`remote error: tls: handshake failure`:                                                             "registry-tls",
	} {
		if got := Pull(text, Names{Image: "r.example/x"}).Kind; got != want {
			t.Errorf("%q is %s; want %s", text, got, want)
		}
	}
}

func TestExit(t *testing.T) {
	if Exit(127) == "" || Exit(1) != "" || Exit(137) == Exit(139) {
		t.Error("the meanings of exit codes")
	}
}
