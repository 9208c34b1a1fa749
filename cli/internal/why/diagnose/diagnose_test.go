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

// CRI-O wraps what containers/image says, and hands on the lines that runc logs.
func TestTextsOfCRIO(t *testing.T) {
	names := Names{Image: "r.example/app:1", Container: "app"}
	for kind, f := range map[string]Finding{
		"command-not-found": Start(`container create failed: time="2026-11-29T10:14:23Z" level=error msg="runc create `+
			`failed: unable to start container process: error during container init: exec: \"nosuch\": executable file not `+
			`found in $PATH"`+"\n", names),
		"mount-file-on-directory": Start(`container create failed: time="2026-11-29T10:14:23Z" level=error msg="runc create `+
			`failed: unable to start container process: error during container init: error mounting \"/a\" to rootfs at `+
			`\"/b\": mount src=/a, dst=/b, dstFd=/proc/thread-self/fd/16, flags=MS_BIND|MS_REC: not a directory"`, names),
		"registry-unauthorized": Pull("unable to pull image or OCI artifact: pull image err: initializing source "+
			"docker://r.example/app:1: reading manifest 1 in r.example/app: unauthorized; artifact err: image reference: "+
			"get manifest from ref: reading manifest 1 in r.example/app: unauthorized", names),
		"image-denied": Pull("initializing source docker://library/nosuch:latest: reading manifest latest in "+
			"docker.io/library/nosuch: requested access to the resource is denied", names),
		"image-other-platform": Pull("choosing image instance: no image found in image index for architecture \"amd64\", "+
			"variant \"\", OS \"linux\"", names),
		"sandbox-image": Sandbox(`creating pod sandbox with name "k8s_a_b_c_0": unable to pull image: initializing source `+
			`docker://r.example/pause:3: pinging container registry r.example: Get "https://r.example/v2/": dial tcp: lookup `+
			`r.example on 10.0.0.2:53: no such host`, names),
		"registry-not-one": Pull("initializing image from source docker://r.example/app:1: invalid character '<' looking for "+
			"beginning of value; artifact err: image reference: parse manifest: invalid character '<'", names),
		"image-damaged": Pull("writing blob: setting up to decompress blob: happened during read: Digest did not match, "+
			"expected sha256:b2, got sha256:80", names),
		"working-directory":    Start("mkdir /var/lib/containers/overlay/5/merged/etc/passwd: not a directory", names),
		"memory-limit-too-low": Sandbox("pod set memory limit 524288 too low; should be at least 12582912 bytes", names),
		"sysctl": Sandbox("failed to pin namespaces [0x21]: [pinns:w]: failed to write to /proc/sys/net/ipv4/"+
			"ip_local_port_range: Invalid argument | [pinns:e]: Failed to configure sysctls after unshare", names),
		"runtime-handler": Sandbox(`failed to find runtime handler heavy from runtime list map[runc:0xc0004]`, names),
	} {
		if f.Kind != kind {
			t.Errorf("%s: %+v", kind, f)
		}
	}
	log := `container create failed: time="2026-11-29T10:14:23Z" level=error msg="runc create failed: \"a\" is odd"`
	if got := Innermost(log); got != `"a" is odd` {
		t.Errorf("the innermost part of a log line is %q", got)
	}
}

func TestExit(t *testing.T) {
	if Exit(127) == "" || Exit(1) != "" || Exit(137) == Exit(139) {
		t.Error("the meanings of exit codes")
	}
}
