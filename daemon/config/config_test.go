package config

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"

// load resolves a configuration from a base file, drop-ins and arguments.
func load(t *testing.T, base string, dropIns map[string]string, args ...string) (*Config, error) {
	t.Helper()
	dir := t.TempDir()
	if base != "" {
		args = append([]string{"--config", write(t, dir, "config.yaml", base)}, args...)
	}
	if dropIns != nil {
		for name, text := range dropIns {
			write(t, filepath.Join(dir, "conf.d"), name, text)
		}
		args = append([]string{"--config-dir", filepath.Join(dir, "conf.d")}, args...)
	}
	var flags Flags
	set := pflag.NewFlagSet("kubelot-test", pflag.ContinueOnError)
	flags.Register(set)
	if err := set.Parse(args); err != nil {
		return nil, err
	}
	return flags.Load()
}

func mustLoad(t *testing.T, base string, dropIns map[string]string, args ...string) *Config {
	t.Helper()
	c, err := load(t, base, dropIns, append([]string{"--hostname-override=node-1"}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func write(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestDefaults(t *testing.T) {
	c := mustLoad(t, "", nil)
	k := c.Kubelet
	got := []any{
		k.MaxPods, *k.RegistryPullQPS, k.RegistryBurst, k.NodeLeaseDurationSeconds, k.CgroupDriver, *k.ResolverConfig,
		*k.SerializeImagePulls, *k.MaxParallelImagePulls, *k.PodPidsLimit, k.EvictionHard["memory.available"],
		c.RootDir, c.CertDir, c.RunDir, c.BusSocket, c.PodLogsDir, c.ContainerLogsDir, c.RuntimeEndpoint, c.ImageEndpoint, c.NodeName, c.RegisterNode,
	}
	want := []any{
		int32(110), int32(5), int32(10), int32(40), "cgroupfs", "/etc/resolv.conf",
		false, int32(4), int64(-1), "100Mi",
		"/var/lib/kubelet", "/var/lib/kubelet/pki", "/run/kubelot", "/run/kubelot/bus.sock", "/var/log/pods", "/var/log/containers",
		"unix:///run/containerd/containerd.sock", "unix:///run/containerd/containerd.sock", "node-1", false,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults:\n got %v\nwant %v", got, want)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("defaults warn: %q", c.Warnings)
	}
}

// Every field must be answered for exactly once, so that none is silently ignored.
func TestFieldTableIsComplete(t *testing.T) {
	var table []string
	for _, f := range Fields {
		table = append(table, f.Path)
		if (f.Level == Supported) != (f.Note == "") {
			t.Errorf("%s: a note belongs to every field that isn't supported, and to no other", f.Path)
		}
	}
	var fields []string
	typ := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	for i := range typ.NumField() {
		if name, _, _ := strings.Cut(typ.Field(i).Tag.Get("json"), ","); name != "" {
			fields = append(fields, name)
		}
	}
	slices.Sort(table)
	slices.Sort(fields)
	if !slices.Equal(table, fields) {
		t.Errorf("table and type differ:\ntable %v\ntype  %v", table, fields)
	}
}

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

func TestDropInsMergeInLexicalOrderBelowFlags(t *testing.T) {
	c := mustLoad(t,
		header+"maxPods: 10\nclusterDNS: [10.0.0.10]\nkubeReserved: {cpu: 100m, memory: 1Gi}\nsyncFrequency: 30s\n",
		map[string]string{
			"20-second.conf":     header + "maxPods: 30\nkubeReserved: {memory: 2Gi}\n",
			"10-first.conf":      header + "maxPods: 20\nclusterDNS: [10.0.0.20, 10.0.0.21]\nsyncFrequency: null\n",
			"sub/30-nested.conf": header + "podsPerCore: 7\n",
			"99-ignored.yaml":    "not even a configuration",
		}, "--max-pods=40", "--v=3", "--eviction-hard=memory.available<5%,nodefs.available<1Gi",
		"--register-with-taints=a=b:NoSchedule,c:NoExecute", "--manifest-url=http://127.0.0.1/x", "--manifest-url-header=A:1,A:2")
	k := c.Kubelet
	got := []any{
		k.MaxPods, k.ClusterDNS, k.KubeReserved, k.SyncFrequency.Duration.String(), k.PodsPerCore, uint32(k.Logging.Verbosity),
		k.EvictionHard, len(c.RegisterTaints), c.RegisterTaints[0].ToString(), c.RegisterTaints[1].ToString(), k.StaticPodURLHeader,
	}
	want := []any{
		int32(40),
		[]string{"10.0.0.20", "10.0.0.21"},
		map[string]string{"cpu": "100m", "memory": "2Gi"},
		"1m0s", int32(7), uint32(3),
		map[string]string{"memory.available": "5%", "nodefs.available": "1Gi"},
		2, "a=b:NoSchedule", "c:NoExecute",
		map[string][]string{"A": {"1", "2"}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("merged:\n got %v\nwant %v", got, want)
	}
}

func TestRelativePathsBelongToTheirFile(t *testing.T) {
	dir := t.TempDir()
	file := write(t, dir, "config.yaml", header+"staticPodPath: manifests\n")
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	c := mustLoad(t, "", nil, "--config="+file, "--tls-cert-file=tls.crt", "--root-dir=root")
	if want := filepath.Join(dir, "manifests"); c.Kubelet.StaticPodPath != want {
		t.Errorf("staticPodPath %s, want %s", c.Kubelet.StaticPodPath, want)
	}
	if want := filepath.Join(here, "tls.crt"); c.Kubelet.TLSCertFile != want {
		t.Errorf("tlsCertFile %s, want %s", c.Kubelet.TLSCertFile, want)
	}
	if want := filepath.Join(here, "root"); c.RootDir != want {
		t.Errorf("root directory %s, want %s", c.RootDir, want)
	}
}

// Each bad input gives one error that names the file or flag, the field and the problem.
func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		base    string
		dropIns map[string]string
		args    []string
		want    []string
	}{
		"unknown field":        {base: header, dropIns: map[string]string{"10.conf": header + "maxPod: 1\n"}, want: []string{"10.conf", `unknown field "maxPod"`}},
		"nested unknown field": {base: header, dropIns: map[string]string{"10.conf": header + "authentication: {x509: {clientCA: x}}\n"}, want: []string{`unknown field "authentication.x509.clientCA"`}},
		"case matters":         {base: header, dropIns: map[string]string{"10.conf": header + "MaxPods: 1\n"}, want: []string{`unknown field "MaxPods"`}},
		"duplicate field":      {base: header, dropIns: map[string]string{"10.conf": header + "maxPods: 1\nmaxPods: 2\n"}, want: []string{"10.conf", "maxPods", "already"}},
		"wrong type":           {base: header + "maxPods: many\n", want: []string{"config.yaml", "maxPods"}},
		"not YAML":             {base: header + "a: [", want: []string{"config.yaml", "neither valid YAML nor JSON"}},
		"wrong kind":           {base: "apiVersion: v1\nkind: Pod\n", want: []string{`kind "Pod"`}},
		"kind missing":         {base: "maxPods: 1\n", want: []string{`apiVersion ""`, `want "kubelet.config.k8s.io/v1beta1"`}},
		"two documents":        {base: header + "---\n" + header, want: []string{"several YAML documents"}},
		"oversized":            {base: header + "# " + strings.Repeat("x", maxFileSize), want: []string{"larger than"}},
		"absent file":          {args: []string{"--config=/does/not/exist"}, want: []string{"/does/not/exist"}},
		"absent drop-in dir":   {args: []string{"--config-dir=/does/not/exist"}, want: []string{"drop-in directory /does/not/exist"}},
		"bad drop-in": {
			base: header, dropIns: map[string]string{"10.conf": header + "nope: 1\n"},
			want: []string{"10.conf", `unknown field "nope"`},
		},
		"invalid value names its origin": {
			base: header, dropIns: map[string]string{"10.conf": header + "maxPods: -1\n"},
			want: []string{"maxPods (set in ", "10.conf) is -1: must not be negative"},
		},
		"all problems at once": {base: header + "cgroupDriver: x\nclusterDNS: [why]\n", want: []string{"cgroupDriver", "clusterDNS"}},
		"bad flag value":       {args: []string{"--max-pods=many"}, want: []string{"--max-pods", "whole number"}},
		"bad node IP":          {args: []string{"--node-ip=1.2.3.4,5.6.7.8"}, want: []string{"--node-ip", "one IPv4 and one IPv6"}},
		"bad label": {args: []string{"--node-labels=foo.kubernetes.io/a=b"}, want: []string{
			"unknown 'kubernetes.io' or 'k8s.io' labels specified with --node-labels: [foo.kubernetes.io/a]", "must begin with an allowed prefix (kubelet.kubernetes.io, node.kubernetes.io)",
		}},
		"bad taint":          {args: []string{"--register-with-taints=a=b:Never"}, want: []string{"registerWithTaints", "a=b:Never"}},
		"bad endpoint":       {args: []string{"--container-runtime-endpoint=tcp://x"}, want: []string{"containerRuntimeEndpoint", "unix socket"}},
		"bad eviction":       {args: []string{"--eviction-hard=memory<1Gi"}, want: []string{"evictionHard.memory", "no such eviction signal"}},
		"bad percentage":     {args: []string{"--eviction-hard=memory.available<101%"}, want: []string{"evictionHard.memory.available", "0% to 100%"}},
		"bad log size":       {base: header + "containerLogMaxSize: much\n", want: []string{"containerLogMaxSize", "a negative one switches rotation off"}},
		"bad name":           {args: []string{"--hostname-override=a_b"}, want: []string{`node name "a_b"`}},
		"bad cloud provider": {args: []string{"--cloud-provider=aws"}, want: []string{"--cloud-provider"}},
		"bootstrap alone":    {args: []string{"--bootstrap-kubeconfig=x"}, want: []string{"--kubeconfig"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := load(t, c.base, c.dropIns, c.args...)
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range c.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error %q lacks %q", err, want)
				}
			}
		})
	}
}

func TestWarnings(t *testing.T) {
	c := mustLoad(t, header+"shutdownGracePeriod: 30s\nreadOnlyPort: 0\nevictionPressureTransitionPeriod: 0s\nfeatureGates: {A: true}\n"+
		"enforceNodeAllocatable: [pods, kube-reserved]\nkubeReservedCgroup: /kube\nenableControllerAttachDetach: false\nmemorySwap: {swapBehavior: LimitedSwap}\nsyncFrequency: 10s\n", nil,
		"--pod-infra-container-image=pause", "--fail-swap-on=false")
	joined := strings.Join(c.Warnings, "\n")
	for _, want := range []string{
		"--pod-infra-container-image", "shutdownGracePeriod (set in ", "featureGates",
		"enableControllerAttachDetach (set in ", "part of its effect only", "syncFrequency",
	} {
		if !strings.Contains(joined, want) {
			t.Errorf("no warning names %s:\n%s", want, joined)
		}
	}
	if len(c.Warnings) != 5 {
		t.Errorf("fields that work and values that equal the default must not warn:\n%s", joined)
	}
}

// What the kubelet ignores in its file doesn't keep a node from starting.
func TestUnknownFieldsAreIgnored(t *testing.T) {
	c := mustLoad(t, header+"noSuchField: 1\nMaxPods: 7\nauthentication: {anonymous: {nope: true}}\nmaxPods: 5\nmaxPods: 6\n", nil)
	if c.Kubelet.MaxPods != 6 || len(c.Warnings) != 4 {
		t.Errorf("maxPods %d, warnings %q", c.Kubelet.MaxPods, c.Warnings)
	}
	for _, warning := range c.Warnings {
		if !strings.Contains(warning, "config.yaml: ") || !strings.Contains(warning, "it is ignored") {
			t.Errorf("warning %q", warning)
		}
	}
}

func TestNodeIdentity(t *testing.T) {
	c := mustLoad(t, "", nil, "--hostname-override=NODE-7", "--kubeconfig=/etc/k", "--node-ip=10.0.0.1,fd00::1",
		"--node-labels=a=b,node.kubernetes.io/role=x,topology.kubernetes.io/zone=z", "--provider-id=p://1", "--container-runtime-endpoint=/run/c.sock")
	if c.NodeName != "node-7" || !c.RegisterNode || c.Standalone() || len(c.NodeIPs) != 2 || c.ProviderID != "p://1" || c.RuntimeEndpoint != "unix:///run/c.sock" {
		t.Errorf("identity: %+v", c)
	}
	want := map[string]string{"a": "b", "node.kubernetes.io/role": "x", "topology.kubernetes.io/zone": "z"}
	if !maps.Equal(c.NodeLabels, want) {
		t.Errorf("labels %v, want %v", c.NodeLabels, want)
	}
}

// The command line of kubeadm's units and environment files.
func TestFlagsOfKubeadm(t *testing.T) {
	c := mustLoad(t, header+"rotateCertificates: true\n", nil, "--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf", "--kubeconfig=/etc/kubernetes/kubelet.conf",
		"--container-runtime-endpoint=unix:///run/containerd/containerd.sock", "--pod-infra-container-image=registry.k8s.io/pause:3.10", "--hostname-override=n1",
		"--node-labels=node.kubernetes.io/pool=a", "--register-with-taints=node-role.kubernetes.io/control-plane:NoSchedule,x=y:NoExecute", "--cloud-provider=external",
		"--node-ip=10.0.0.5", "--cgroup-driver=systemd", "--fail-swap-on=false", "--resolv-conf=/run/systemd/resolve/resolv.conf", "--v=2")
	if c.BootstrapKubeconfig != "/etc/kubernetes/bootstrap-kubelet.conf" || c.ClientCertificate != "/var/lib/kubelet/pki/kubelet-client-current.pem" ||
		len(c.RegisterTaints) != 2 || c.NodeLabels["node.kubernetes.io/pool"] != "a" || c.CloudProvider != "external" || *c.Kubelet.FailSwapOn {
		t.Errorf("configuration %+v", c)
	}
	if len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "--pod-infra-container-image") {
		t.Errorf("warnings %q", c.Warnings)
	}
}

func TestArgsRepeatWhatWasGiven(t *testing.T) {
	var flags Flags
	set := pflag.NewFlagSet("up", pflag.ContinueOnError)
	set.Bool("down", false, "a flag of another owner")
	flags.Register(set)
	given := []string{"--fail-swap-on=false", "--manifest-url-header=A:1", "--manifest-url-header=B:2", "--max-pods=5", "--run-dir=/r", "--v=4"}
	if err := set.Parse(append([]string{"--down"}, given...)); err != nil {
		t.Fatal(err)
	}
	if got := flags.Args(); !slices.Equal(got, given) {
		t.Errorf("arguments %q, want %q", got, given)
	}
}

// The kubelet takes a negative size for no rotation.
func TestLogRotationMayBeOff(t *testing.T) {
	if c := mustLoad(t, header+"containerLogMaxSize: \"-1\"\n", nil); c.Kubelet.ContainerLogMaxSize != "-1" {
		t.Errorf("containerLogMaxSize %q", c.Kubelet.ContainerLogMaxSize)
	}
}

func TestSerializeImagePulls(t *testing.T) {
	for text, want := range map[string]bool{
		"":                           false,
		"serializeImagePulls: true":  true,
		"serializeImagePulls: false": false,
		"maxParallelImagePulls: 1":   true,
		"maxParallelImagePulls: 5":   false,
	} {
		if got := *mustLoad(t, header+text+"\n", nil).Kubelet.SerializeImagePulls; got != want {
			t.Errorf("%q: serialize %v, want %v", text, got, want)
		}
	}
}

func FuzzDecodeDocument(f *testing.F) {
	f.Add([]byte(header + "maxPods: 1\nkubeReserved: {cpu: 1}\n"))
	f.Add([]byte(header + "resolvConf: null\nregisterWithTaints: [{}]\nlogging: {options: {json: {infoBufferSize: 1}}}\n"))
	f.Add([]byte(`{"apiVersion":"kubelet.config.k8s.io/v1beta1","kind":"KubeletConfiguration","userNamespaces":{},"crashLoopBackOff":{}}`))
	f.Add([]byte("&a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		fields, _, err := decodeDocument(data)
		if err != nil {
			return
		}
		anchorPaths(fields, "/etc")
		m := merge([]layer{{source: "fuzz", fields: fields}})
		k, err := m.decode()
		if err != nil {
			t.Fatalf("a valid document can't be merged: %v", err)
		}
		setDefaults(&k)
		if validate(&k, m.where) != nil {
			return
		}
		fieldWarnings(m, &k)
	})
}
