package config

import (
	"cmp"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
)

func TestFieldFlagsNameRealFields(t *testing.T) {
	for _, row := range fieldFlags {
		if fieldType(row[1]) == reflect.TypeFor[struct{}]() {
			t.Errorf("flag --%s stands for %s, which doesn't exist", row[0], row[1])
		}
	}
	for _, path := range pathFields {
		if fieldType(path) != reflect.TypeFor[string]() {
			t.Errorf("%s isn't a path", path)
		}
	}
}

// The command line of kubeadm's units and environment files.
func TestFlagsOfKubeadm(t *testing.T) {
	c := mustLoad(t, header+"rotateCertificates: true\n", nil,
		"--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--container-runtime-endpoint=unix:///run/containerd/containerd.sock",
		"--pod-infra-container-image=registry.k8s.io/pause:3.10", "--hostname-override=n1",
		"--node-labels=node.kubernetes.io/pool=a",
		"--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule,x=y:NoExecute", "--cloud-provider=external",
		"--node-ip=10.0.0.5", "--cgroup-driver=systemd", "--fail-swap-on=false",
		"--resolv-conf=/run/systemd/resolve/resolv.conf", "--v=2")
	if c.BootstrapKubeconfig != "/etc/kubernetes/bootstrap-kubelet.conf" ||
		c.ClientCertificate != "/var/lib/kubelet/pki/kubelet-client-current.pem" ||
		len(c.RegisterTaints) != 2 || c.NodeLabels["node.kubernetes.io/pool"] != "a" || c.CloudProvider != "external" ||
		*c.Kubelet.FailSwapOn {
		t.Errorf("configuration %+v", c)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "--pod-infra-container-image") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

// The kubelet takes an underscore for a dash in the name of a flag.
func TestFlagsWithUnderscores(t *testing.T) {
	c := mustLoad(t, "", nil, "--max_pods=5", "--root_dir", "/r", "--fail_swap-on=false")
	if c.Kubelet.MaxPods != 5 || c.RootDir != "/r" || *c.Kubelet.FailSwapOn {
		t.Errorf("configuration %+v", c)
	}
	flags, err := parsedFlags("--max_pods=5", "--node_ip=10.0.0.5")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := flags.Args(), []string{"--max-pods=5", "--node-ip=10.0.0.5"}; !slices.Equal(got, want) {
		t.Errorf("arguments %q, want %q", got, want)
	}
}

// The kubelet goes on without what is no address, and takes zeros at the front.
func TestAddressesThatAreNone(t *testing.T) {
	for given, want := range map[string]string{
		"10.0.0.5,":              "[10.0.0.5] 1",
		"010.000.00.05,fd00::5":  "[10.0.0.5 fd00::5] 0",
		"nonsense":               "[] 1",
		" 10.0.0.5 ,fe80::1%eth": "[10.0.0.5] 1",
		"::ffff:10.0.0.5":        "[10.0.0.5] 0",
		"0.0.0.0":                "[0.0.0.0] 0",
		"10.0.0":                 "[] 1",
		"10..0.5,10.0.0.0x5":     "[] 2",
	} {
		c := mustLoad(t, "", nil, "--node-ip="+given)
		if got := fmt.Sprintf("%v %d", c.NodeIPs, len(c.Warnings)); got != want {
			t.Errorf("--node-ip=%q: %s %q, want %s", given, got, c.Warnings, want)
		}
	}
	c := mustLoad(t, header+"clusterDNS: [\"\", 10.96.0.010, why, \"fd00:0::a\"]\n", nil)
	if want := []string{"10.96.0.10", "fd00::a"}; !slices.Equal(c.Kubelet.ClusterDNS, want) || len(c.Warnings) != 2 ||
		!strings.HasPrefix(c.Warnings[1], "clusterDNS (set in ") || !strings.Contains(c.Warnings[1], `"why" is no IP`) {
		t.Errorf("servers %q, warnings %q", c.Kubelet.ClusterDNS, c.Warnings)
	}
}

func TestFlagOfReservedMemory(t *testing.T) {
	c := mustLoad(t, header+"memoryManagerPolicy: Static\nsystemReserved: {memory: 3Gi}\n", nil,
		"--reserved-memory=0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=1Gi", "--reserved-memory=2:memory=1Gi")
	var got []string
	for _, r := range c.Kubelet.ReservedMemory {
		memory := r.Limits[corev1.ResourceMemory]
		got = append(got, fmt.Sprintf("%d %s %d", r.NumaNode, memory.String(), len(r.Limits)))
	}
	if want := []string{"0 1Gi 2", "1 1Gi 1", "2 1Gi 1"}; !slices.Equal(got, want) || len(c.Warnings) > 0 {
		t.Errorf("got %q, warnings %q", got, c.Warnings)
	}
	for _, bad := range []string{"memory=1Gi", "x:memory=1Gi", "0:memory", "0"} {
		if value, err := parseMemory(bad, nil); err == nil {
			t.Errorf("%q is taken for %v", bad, value)
		}
	}
}

// Credential providers have flags only, which go together.
func TestFlagsOfCredentialProviders(t *testing.T) {
	config, dir := "--image-credential-provider-config=/etc/providers.yaml", "--image-credential-provider-bin-dir=/opt/bin"
	c := mustLoad(t, header, nil, config, dir)
	want := CredentialProviders{"/etc/providers.yaml", "/opt/bin"}
	if got := c.CredentialProviders; got != want || len(c.Warnings) > 0 {
		t.Errorf("got %+v, warnings %q", got, c.Warnings)
	}
	for _, one := range []string{config, dir} {
		var flags Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Register(set)
		if err := set.Parse([]string{one}); err != nil {
			t.Fatal(err)
		}
		if _, err := flags.Load(); err == nil || !strings.Contains(err.Error(), "go together") {
			t.Errorf("%s alone: %v", one, err)
		}
	}
}

func TestArgsRepeatWhatWasGiven(t *testing.T) {
	var flags Flags
	set := pflag.NewFlagSet("up", pflag.ContinueOnError)
	set.Bool("down", false, "a flag of another owner")
	flags.Register(set)
	given := []string{
		"--fail-swap-on=false", "--manifest-url-header=A:1", "--manifest-url-header=B:2", "--max-pods=5",
		"--run-dir=/r", "--v=4",
	}
	if err := set.Parse(append([]string{"--down"}, given...)); err != nil {
		t.Fatal(err)
	}
	if got := flags.Args(); !slices.Equal(got, given) {
		t.Errorf("arguments %q, want %q", got, given)
	}
}

// Whatever is given on the command line, flags are refused with an error, or can be handed on to another daemon, which
// reads the same from them and makes the same configuration of it.
func FuzzFlags(f *testing.F) {
	flags := registeredFlags()
	for i, text := range []string{
		"127.0.0.1", "kernel.*,net.ipv4.ip_forward", "true", "5s", "", "a=b:NoSchedule,c:NoExecute", "x-token:a,x-token:b",
		"memory.available<100Mi", "AllAlpha=false", "10250", "9223372036854775808", "\"a,b\",c", "-1", "=", ":",
		"node.kubernetes.io/pool=a,b=", "10.0.0.5, fd00::5", "external", "../pki",
	} {
		for which := i % 5; which < len(flags); which += 5 {
			f.Add(which, text, text)
		}
	}
	f.Fuzz(func(t *testing.T, which int, first, second string) {
		flag := flags[uint(which)%uint(len(flags))]
		given, err := parsedFlags(flag+"="+first, flag+"="+second)
		if err != nil {
			return
		}
		handedOn, err := parsedFlags(given.Args()...)
		if err != nil {
			t.Fatalf("%q was taken, and isn't when it is handed on as %q: %v", []string{first, second}, given.Args(), err)
		}
		want, err := given.layer()
		if err != nil {
			t.Fatal(err)
		}
		got, err := handedOn.layer()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s is %v, and %v when it is handed on (%v)", flag, want, got, err)
		}
		if k, err := merge([]layer{want}).decode(); err == nil {
			setDefaults(&k)
			_ = validate(&k, func(string) string { return "" })
		}
		wanted, refused := resolved(given)
		if c, err := resolved(handedOn); (err == nil) != (refused == nil) || !reflect.DeepEqual(c, wanted) {
			t.Errorf("%s gives %+v, %v, and %+v, %v when it is handed on", flag, wanted, refused, c, err)
		}
	})
}

// registeredFlags are all flags as they are written on a command line, shorthands too.
func registeredFlags() []string {
	var all []string
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&Flags{}).Register(set)
	set.VisitAll(func(flag *pflag.Flag) {
		all = append(all, "--"+flag.Name)
		if flag.Shorthand != "" {
			all = append(all, "-"+flag.Shorthand)
		}
	})
	return all
}

// resolved is the configuration without files: what they hold is FuzzDecodeDocument's.
func resolved(flags *Flags) (*Config, error) {
	flags.ConfigFile, flags.ConfigDir = "", ""
	flags.HostnameOverride = cmp.Or(flags.HostnameOverride, "node-1")
	return flags.Load()
}

func parsedFlags(args ...string) (*Flags, error) {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	flags := &Flags{}
	flags.Register(fs)
	return flags, fs.Parse(args)
}
