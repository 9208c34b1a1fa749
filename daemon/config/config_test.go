package config

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
		c.RootDir, c.CertDir, c.RunDir, c.BusSocket, c.PodLogsDir, c.ContainerLogsDir, c.RuntimeEndpoint, c.ImageEndpoint,
		c.NodeName, c.RegisterNode,
	}
	want := []any{
		int32(110), int32(5), int32(10), int32(40), "cgroupfs", "/etc/resolv.conf",
		false, int32(4), int64(-1), "100Mi",
		"/var/lib/kubelet", "/var/lib/kubelet/pki", "/run/kubelot", "/run/kubelot/bus.sock", "/var/log/pods",
		"/var/log/containers",
		"unix:///run/containerd/containerd.sock", "unix:///run/containerd/containerd.sock", "node-1", false,
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("defaults:\n got %v\nwant %v", got, want)
	}
	if len(c.Warnings) > 0 {
		t.Errorf("defaults warn: %q", c.Warnings)
	}
}

// Zero would be no limit for kubelot's clients.
func TestNoQPSIsTheDefault(t *testing.T) {
	if got := *mustLoad(t, header+"kubeAPIQPS: 0\n", nil).Kubelet.KubeAPIQPS; got != 50 {
		t.Errorf("kubeAPIQPS %d", got)
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

func TestDropInsMergeInLexicalOrderBelowFlags(t *testing.T) {
	c := mustLoad(t,
		header+"maxPods: 10\nclusterDNS: [10.0.0.10]\nkubeReserved: {cpu: 100m, memory: 1Gi}\nsyncFrequency: 30s\n",
		map[string]string{
			"20-second.conf":     header + "maxPods: 30\nkubeReserved: {memory: 2Gi}\n",
			"10-first.conf":      header + "maxPods: 20\nclusterDNS: [10.0.0.20, 10.0.0.21]\nsyncFrequency: null\n",
			"sub/30-nested.conf": header + "podsPerCore: 7\n",
			"99-ignored.yaml":    "not even a configuration",
		}, "--max-pods=40", "--v=3", "--eviction-hard=memory.available<5%,nodefs.available<1Gi",
		"--register-with-taints=a=b:NoSchedule,c:NoExecute", "--manifest-url=http://127.0.0.1/x",
		"--manifest-url-header=A:1,A:2")
	k := c.Kubelet
	got := []any{
		k.MaxPods, k.ClusterDNS, k.KubeReserved, k.SyncFrequency.Duration.String(), k.PodsPerCore,
		uint32(k.Logging.Verbosity),
		k.EvictionHard, len(c.RegisterTaints), c.RegisterTaints[0].ToString(), c.RegisterTaints[1].ToString(),
		k.StaticPodURLHeader,
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

// As with the kubelet, a drop-in changes single entries, also of the default thresholds. A flag takes the place of all
// entries, except for feature gates.
func TestMapsInDropInsAndFlags(t *testing.T) {
	base := header + "systemReserved: {memory: 1Gi}\nfeatureGates: {PodsAPI: true}\n"
	dropIns := map[string]string{
		"10.conf": header + "evictionHard: {memory.available: 200Mi}\nsystemReserved: {cpu: 100m}\n",
	}
	hard := maps.Clone(defaultEvictionHard)
	hard["memory.available"] = "200Mi"
	both := map[string]string{"memory": "1Gi", "cpu": "100m"}
	if k := mustLoad(t, base, dropIns).Kubelet; !maps.Equal(k.EvictionHard, hard) || !maps.Equal(k.SystemReserved, both) {
		t.Errorf("with a drop-in: thresholds %v, reserved %v", k.EvictionHard, k.SystemReserved)
	}
	if k := mustLoad(t, "", dropIns).Kubelet; !maps.Equal(k.EvictionHard, hard) {
		t.Errorf("with a drop-in alone: thresholds %v", k.EvictionHard)
	}
	alone := map[string]string{"memory.available": "5%"}
	if k := mustLoad(t, "", nil, "--eviction-hard=memory.available<5%").Kubelet; !maps.Equal(k.EvictionHard, alone) {
		t.Errorf("with a flag alone: thresholds %v", k.EvictionHard)
	}
	k := mustLoad(t, base, dropIns, "--eviction-hard=memory.available<5%", "--system-reserved=cpu=200m",
		"--feature-gates=SELinuxMount=true").Kubelet
	got := []any{k.EvictionHard, k.SystemReserved, k.FeatureGates}
	want := []any{
		map[string]string{"memory.available": "5%"},
		map[string]string{"cpu": "200m"},
		map[string]bool{"PodsAPI": true, "SELinuxMount": true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("with flags:\n got %v\nwant %v", got, want)
	}
}

// The older of the two fields sets both in the file of --config only.
func TestNodeStatusFrequencies(t *testing.T) {
	older := header + "nodeStatusUpdateFrequency: 20s\n"
	for name, c := range map[string]struct {
		base   string
		dropIn map[string]string
		args   []string
		report time.Duration
	}{
		"neither":   {base: header, report: 5 * time.Minute},
		"--config":  {base: older, report: 20 * time.Second},
		"kubeadm's": {base: older + "nodeStatusReportFrequency: 0s\n", report: 20 * time.Second},
		"a drop-in": {base: header, dropIn: map[string]string{"10.conf": older}, report: 5 * time.Minute},
		"a flag":    {base: header, args: []string{"--node-status-update-frequency=20s"}, report: 5 * time.Minute},
		"no file":   {args: []string{"--node-status-update-frequency=20s"}, report: 5 * time.Minute},
	} {
		if got := mustLoad(t, c.base, c.dropIn, c.args...).Kubelet.NodeStatusReportFrequency.Duration; got != c.report {
			t.Errorf("%s: the status is reported every %s, want %s", name, got, c.report)
		}
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
	// A kubelet with a root directory of its own keeps its certificates where all others do.
	if c.CertDir != "/var/lib/kubelet/pki" {
		t.Errorf("directory of certificates %s", c.CertDir)
	}
}

func TestNodeIdentity(t *testing.T) {
	c := mustLoad(t, "", nil, "--hostname-override=NODE-7", "--kubeconfig=/etc/k", "--node-ip=10.0.0.1,fd00::1",
		"--node-labels=a=b,node.kubernetes.io/role=x,topology.kubernetes.io/zone=z", "--provider-id=p://1",
		"--container-runtime-endpoint=/run/c.sock")
	if c.NodeName != "node-7" || !c.RegisterNode || c.Standalone() || len(c.NodeIPs) != 2 || c.ProviderID != "p://1" ||
		c.RuntimeEndpoint != "unix:///run/c.sock" {
		t.Errorf("identity: %+v", c)
	}
	want := map[string]string{"a": "b", "node.kubernetes.io/role": "x", "topology.kubernetes.io/zone": "z"}
	if !maps.Equal(c.NodeLabels, want) {
		t.Errorf("labels %v, want %v", c.NodeLabels, want)
	}
}

// The kubelet takes a negative size for no rotation.
func TestLogRotationMayBeOff(t *testing.T) {
	if c := mustLoad(t, header+"containerLogMaxSize: \"-1\"\n", nil); c.Kubelet.ContainerLogMaxSize != "-1" {
		t.Errorf("containerLogMaxSize %q", c.Kubelet.ContainerLogMaxSize)
	}
}

func TestSerializeImagePulls(t *testing.T) {
	for text, want := range map[string]struct {
		serialize bool
		parallel  int32 // 0 is none
	}{
		"":                           {false, defaultParallelPulls},
		"serializeImagePulls: true":  {true, 0},
		"serializeImagePulls: false": {false, defaultParallelPulls},
		"maxParallelImagePulls: 1":   {true, 1},
		"maxParallelImagePulls: 5":   {false, 5},
	} {
		k := &mustLoad(t, header+text+"\n", nil).Kubelet
		parallel := int32(0)
		if k.MaxParallelImagePulls != nil {
			parallel = *k.MaxParallelImagePulls
		}
		if *k.SerializeImagePulls != want.serialize || parallel != want.parallel {
			t.Errorf("%q: serialize %v, %d in parallel, want %+v", text, *k.SerializeImagePulls, parallel, want)
		}
	}
}
