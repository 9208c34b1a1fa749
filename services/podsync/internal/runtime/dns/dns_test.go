package dns

import (
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func testNode() Node {
	return Node{
		ClusterDNS:    []string{"10.96.0.10"},
		ClusterDomain: "cluster.local",
		Resolv: &Resolv{
			Servers: []string{"192.0.2.53", "192.0.2.54"}, Searches: []string{"example.com"},
			Options: []string{"edns0", "timeout:3"},
		},
	}
}

func testPod(policy corev1.DNSPolicy, hostNetwork bool) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", UID: "u-1"},
		Spec:       corev1.PodSpec{DNSPolicy: policy, HostNetwork: hostNetwork},
	}
}

func TestPolicies(t *testing.T) {
	host := &runtimeapi.DNSConfig{
		Servers: []string{"192.0.2.53", "192.0.2.54"}, Searches: []string{"example.com"},
		Options: []string{"edns0", "timeout:3"},
	}
	cluster := &runtimeapi.DNSConfig{
		Servers:  []string{"10.96.0.10"},
		Searches: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"},
		Options:  []string{"ndots:5"},
	}
	for _, c := range []struct {
		policy      corev1.DNSPolicy
		hostNetwork bool
		want        *runtimeapi.DNSConfig
	}{
		{corev1.DNSNone, false, &runtimeapi.DNSConfig{}},
		{corev1.DNSDefault, false, host},
		{corev1.DNSClusterFirst, false, cluster},
		{corev1.DNSClusterFirst, true, host},
		{corev1.DNSClusterFirstWithHostNet, true, cluster},
		{"", false, cluster},
		{"", true, host},
		{"Bogus", false, cluster},
	} {
		got, warnings := ForPod(testNode(), testPod(c.policy, c.hostNetwork))
		if !reflect.DeepEqual(got, c.want) || len(warnings) > 0 {
			t.Errorf("%q, host network %v: got %v and %v, want %v", c.policy, c.hostNetwork, got, warnings, c.want)
		}
	}
}

func TestMissingClusterDNS(t *testing.T) {
	node := testNode()
	node.ClusterDNS = nil
	got, warnings := ForPod(node, testPod(corev1.DNSClusterFirst, false))
	if len(got.Servers) != 2 || len(warnings) != 1 || warnings[0].Reason != "MissingClusterDNS" {
		t.Fatalf("got %v, %v", got, warnings)
	}
	want := `pod: "web_ns(u-1)". kubelet does not have ClusterDNS IP configured and cannot create Pod using "ClusterFirst" policy. Falling back to "Default" policy.`
	if warnings[0].Message != want {
		t.Errorf("got %s", warnings[0].Message)
	}
}

func TestNoResolvConf(t *testing.T) {
	node := Node{IPs: []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}}
	got, _ := ForPod(node, testPod(corev1.DNSDefault, false))
	if want := (&runtimeapi.DNSConfig{
		Servers:  []string{"127.0.0.1", "::1"},
		Searches: []string{"."},
	}); !reflect.DeepEqual(got, want) {
		t.Errorf("got %v", got)
	}
	got, _ = ForPod(Node{}, testPod(corev1.DNSDefault, false))
	if len(got.Servers) != 1 || got.Servers[0] != "127.0.0.1" {
		t.Errorf("got %v", got)
	}
}

func TestDNSConfigMerges(t *testing.T) {
	pod := testPod(corev1.DNSClusterFirst, false)
	two, empty := "2", ""
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{
		Nameservers: []string{"10.96.0.10", "192.0.2.9"},
		Searches:    []string{"cluster.local", "my.example"},
		Options: []corev1.PodDNSConfigOption{
			{Name: "ndots", Value: &two},
			{Name: "edns0"},
			{Name: "debug", Value: &empty},
		},
	}
	node := testNode()
	got, warnings := ForPod(node, pod)
	want := &runtimeapi.DNSConfig{
		Servers:  []string{"10.96.0.10", "192.0.2.9"},
		Searches: []string{"ns.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com", "my.example"},
		Options:  []string{"ndots:2", "edns0", "debug"},
	}
	if !reflect.DeepEqual(got, want) || len(warnings) > 0 {
		t.Errorf("got %v and %v", got, warnings)
	}
	if !reflect.DeepEqual(node, testNode()) {
		t.Error("the node's settings were changed")
	}
}

func TestLimits(t *testing.T) {
	pod := testPod(corev1.DNSNone, false)
	searches := func(n, length int) []string {
		var out []string
		for i := range n {
			out = append(out, fmt.Sprintf("%0*d", length, i))
		}
		return out
	}
	for _, c := range []struct {
		name     string
		servers  int
		searches []string
		want     int
		warnings int
	}{
		{"all fits", 3, searches(32, 10), 32, 0},
		{"a server too many", 4, nil, 0, 1},
		{"a search too many", 1, searches(33, 10), 32, 1},
		{"one name too long", 1, append(searches(1, 254), "a"), 1, 1},
		{"just 2048 characters", 1, append(searches(31, 64), strings.Repeat("x", 33)), 32, 0},
		{"2049 characters", 1, append(searches(31, 64), strings.Repeat("x", 34)), 31, 1},
	} {
		pod.Spec.DNSConfig = &corev1.PodDNSConfig{Searches: c.searches, Nameservers: searches(c.servers, 3)}
		got, warnings := ForPod(testNode(), pod)
		if len(got.Searches) != c.want || len(warnings) != c.warnings || len(got.Servers) > 3 {
			t.Errorf("%s: %d servers, %d searches, %v", c.name, len(got.Servers), len(got.Searches), warnings)
		}
	}
	want := "Nameserver limits were exceeded, some nameservers have been omitted, " +
		"the applied nameserver line is: 000 001 002"
	pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: searches(4, 3)}
	if _, warnings := ForPod(testNode(), pod); len(warnings) != 1 || warnings[0].Message != want ||
		warnings[0].Reason != "DNSConfigForming" {
		t.Errorf("got %v", warnings)
	}
}

func TestParseResolvConf(t *testing.T) {
	text := `# comment
; another
nameserver 192.0.2.1 # trailing
  nameserver	fd00::1
search a.example. b.example
search c.example. . d.example
options ndots:1 edns0
options ndots:3
sortlist 130.155.160.0
nameserver
`
	got, err := ParseResolvConf([]byte(text))
	want := &Resolv{
		Servers: []string{"192.0.2.1", "fd00::1"}, Searches: []string{"c.example", "d.example"},
		Options: []string{"ndots:3", "edns0"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v", got)
	}
	if err == nil || !strings.Contains(err.Error(), "line 10") {
		t.Errorf("got %v, want an error that names line 10", err)
	}
	if _, err := ParseResolvConf(make([]byte, maxResolvConf+1)); err == nil {
		t.Error("an oversized file was read")
	}
}

// FuzzParseResolvConf checks that parsing what was parsed gives the same again.
func FuzzParseResolvConf(f *testing.F) {
	for _, seed := range []string{
		"nameserver 1.2.3.4\nsearch a. b\noptions x:1 y", "search",
		"nameserver\r\n", "options a a:1",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		first, _ := ParseResolvConf([]byte(text))
		var out strings.Builder
		for _, s := range first.Servers {
			out.WriteString("nameserver " + s + "\n")
		}
		if len(first.Searches) > 0 {
			out.WriteString("search " + strings.Join(first.Searches, " ") + "\n")
		}
		out.WriteString("options " + strings.Join(first.Options, " ") + "\n")
		second, err := ParseResolvConf([]byte(out.String()))
		if err != nil {
			t.Fatalf("%q: %v", out.String(), err)
		}
		if !reflect.DeepEqual(first.Servers, second.Servers) || !reflect.DeepEqual(first.Options, second.Options) {
			t.Errorf("%q: %+v, then %+v", text, first, second)
		}
	})
}
