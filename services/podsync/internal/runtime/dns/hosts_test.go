package dns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestHostname(t *testing.T) {
	long := strings.Repeat("a", 61) + "--bcd"
	override := func(name string) *string { return &name }
	for _, c := range []struct {
		name         string
		change       func(*corev1.PodSpec)
		podName      string
		want, domain string
		wantErr      string
	}{
		{name: "plain", podName: "web", want: "web"},
		{name: "truncated before the dashes", podName: long, want: strings.Repeat("a", 61)},
		{name: "hostname", podName: "web", change: func(s *corev1.PodSpec) { s.Hostname = "h" }, want: "h"},
		{
			name: "subdomain", podName: "web", change: func(s *corev1.PodSpec) { s.Subdomain = "sub" }, want: "web",
			domain: "sub.ns.svc.cluster.local",
		},
		{name: "override", podName: "web", change: func(s *corev1.PodSpec) {
			s.HostnameOverride, s.Subdomain, s.Hostname = override("a.b"), "sub", "h"
		}, want: "a.b"},
		{
			name: "bad hostname", podName: "web", change: func(s *corev1.PodSpec) { s.Hostname = "A_" },
			wantErr: `pod Hostname "A_" is not a valid DNS label`,
		},
		{
			name: "bad subdomain", podName: "web", change: func(s *corev1.PodSpec) { s.Subdomain = "a.b" },
			wantErr: `pod Subdomain "a.b"`,
		},
		{
			name: "bad override", podName: "web", change: func(s *corev1.PodSpec) { s.HostnameOverride = override("_") },
			wantErr: `pod HostnameOverride "_"`,
		},
	} {
		pod := testPod("", false)
		pod.Name = c.podName
		if c.change != nil {
			c.change(&pod.Spec)
		}
		got, domain, err := hostname(pod, "cluster.local")
		if c.wantErr != "" {
			if err == nil || !strings.Contains(err.Error(), c.wantErr) {
				t.Errorf("%s: got %v", c.name, err)
			}
			continue
		}
		if err != nil || got != c.want || domain != c.domain {
			t.Errorf("%s: got %q, %q, %v", c.name, got, domain, err)
		}
	}
}

func TestKernelHostname(t *testing.T) {
	pod := testPod("", false)
	yes := true
	pod.Spec.SetHostnameAsFQDN = &yes
	if got, err := KernelHostname(pod, "cluster.local"); err != nil || got != "web" {
		t.Errorf("without a subdomain: got %q, %v", got, err)
	}
	pod.Spec.Subdomain = "sub"
	if got, err := KernelHostname(pod, "cluster.local"); err != nil || got != "web.sub.ns.svc.cluster.local" {
		t.Errorf("got %q, %v", got, err)
	}
	pod.Spec.Hostname = strings.Repeat("h", 40)
	_, err := KernelHostname(pod, "cluster.local")
	if err == nil || !strings.Contains(err.Error(), "is too long (64 characters is the max, 65 characters requested)") {
		t.Errorf("got %v", err)
	}
	pod.Spec.SetHostnameAsFQDN = nil
	if got, err := KernelHostname(pod, "cluster.local"); err != nil || got != pod.Spec.Hostname {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHosts(t *testing.T) {
	pod := testPod("", false)
	pod.Spec.Subdomain = "sub"
	pod.Spec.HostAliases = []corev1.HostAlias{{IP: "1.2.3.4", Hostnames: []string{"foo", "bar"}}}
	got, err := Hosts(HostsInput{Pod: pod, ClusterDomain: "cluster.local", PodIPs: []string{"10.0.0.5", "fd00::5"}})
	want := `# Kubernetes-managed hosts file.
127.0.0.1	localhost
::1	localhost ip6-localhost ip6-loopback
fe00::0	ip6-localnet
fe00::0	ip6-mcastprefix
fe00::1	ip6-allnodes
fe00::2	ip6-allrouters
10.0.0.5	web.sub.ns.svc.cluster.local	web
fd00::5	web.sub.ns.svc.cluster.local	web

# Entries added by HostAliases.
1.2.3.4	foo	bar
`
	if err != nil || string(got) != want {
		t.Errorf("got %v\n%s", err, got)
	}
	if got, err := Hosts(HostsInput{Pod: pod}); got != nil || err != nil {
		t.Errorf("a pod without addresses: got %q, %v", got, err)
	}

	pod = testPod("", true)
	got, err = Hosts(HostsInput{Pod: pod, NodeHosts: []byte("127.0.0.1 localhost\n")})
	if want := "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n"; err != nil ||
		string(got) != want {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestWriteHosts(t *testing.T) {
	path := HostsPath(t.TempDir())
	stat := func() os.FileInfo {
		info, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	write := func(text string) {
		if err := WriteHosts(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	first := stat()
	if first.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", first.Mode())
	}
	write("one")
	if !os.SameFile(first, stat()) {
		t.Error("an unchanged file was replaced")
	}
	write("two")
	if text, err := os.ReadFile(path); err != nil || string(text) != "two" {
		t.Errorf("got %q, %v", text, err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files left behind: %v, %v", left, err)
	}
	if err := WriteHosts(filepath.Join(path, "x", "etc-hosts"), nil); err == nil {
		t.Error("no error for a directory that isn't there")
	}
}

// A container may write its hosts file, and so may make it a terabyte long.
func TestWriteHostsOverAFileThatMemoryCanNotHold(t *testing.T) {
	path := HostsPath(t.TempDir())
	if err := os.WriteFile(path, []byte("one"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Skip("the file system has no sparse files of this size:", err)
	}
	if err := WriteHosts(path, []byte("one")); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "one" {
		t.Errorf("got %q, %v", text, err)
	}
}
