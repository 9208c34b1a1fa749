package kubeletconfig

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // the kubelet has the format
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/apis/config/validation"
	"k8s.io/kubernetes/pkg/kubelet/kubeletconfig/configfiles"
	"k8s.io/kubernetes/pkg/util/filesystem"

	"kubelot.dev/daemon/config"
)

// header begins every file. This machine may have cgroup v1, on which the kubelet refuses to run otherwise.
const header = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\nfailCgroupV1: false\n"

func TestMain(m *testing.M) {
	// The kubelet's program adds them to the library's.
	if err := logsapi.AddFeatureGates(utilfeature.DefaultMutableFeatureGate); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

// verdicts are the kubelet's and kubelot's on the same file.
func verdicts(t *testing.T, dir, text string) (kubelet, kubelot error) {
	t.Helper()
	file := filepath.Join(dir, "kubelet.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	loader, err := configfiles.NewFsLoader(&filesystem.DefaultFs{}, file)
	if err != nil {
		t.Fatal(err)
	}
	k, kubelet := loader.Load(t.Context())
	if kubelet == nil {
		kubelet = validation.ValidateKubeletConfiguration(k, utilfeature.DefaultFeatureGate)
	}
	var flags config.Flags
	set := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Register(set)
	if err := set.Parse([]string{"--config=" + file, "--hostname-override=n"}); err != nil {
		t.Fatal(err)
	}
	_, kubelot = flags.Load()
	return kubelet, kubelot
}

// stricter are fields of which kubelot refuses values that the kubelet's validation takes, each with the reason.
var stricter = map[string]string{
	"address":                                   later,
	"healthzBindAddress":                        later,
	"staticPodURL":                              later,
	"cgroupDriver":                              later,
	"containerLogMaxSize":                       later,
	"containerRuntimeEndpoint":                  later,
	"imageServiceEndpoint":                      later,
	"syncFrequency":                             spins,
	"fileCheckFrequency":                        spins,
	"httpCheckFrequency":                        spins,
	"nodeStatusUpdateFrequency":                 spins,
	"nodeStatusReportFrequency":                 spins,
	"runtimeRequestTimeout":                     "every call of the runtime would fail",
	"configMapAndSecretChangeDetectionStrategy": later,
	"qosReserved":                               later,
}

const (
	later = "the kubelet doesn't start with it, or not usefully; it just finds out later"
	spins = "a negative period is none"
)

// laxer are fields of which kubelot takes values that the kubelet refuses, each with the reason.
var laxer = map[string]string{
	"showHiddenMetricsForVersion": "kubelot hides no metrics, so no version is wrong",
	"singleProcessOOMKill":        "false is refused on cgroup v1 only, where it has no effect",
}

func TestFilesByHand(t *testing.T) {
	dir := t.TempDir()
	for _, text := range []string{
		"",
		"systemCgroups: /system\n",
		"systemCgroups: /system\ncgroupRoot: /\n",
		"imageMinimumGCAge: 10m\nimageMaximumGCAge: 5m\n",
		"imageMaximumGCAge: 2m\n",
		"imageMaximumGCAge: 3m\n",
		"imageGCLowThresholdPercent: 85\n",
		"imageGCHighThresholdPercent: 100\nimageGCLowThresholdPercent: 99\n",
		"maxParallelImagePulls: 2\nserializeImagePulls: true\n",
		"maxParallelImagePulls: 2\n",
		"maxParallelImagePulls: 1\nserializeImagePulls: true\n",
		"registerWithTaints: [{key: a, value: b, effect: NoSchedule}]\n",
		"registerWithTaints: [{key: a, value: b, effect: Never}]\n",
		"registerWithTaints: [{key: a, value: b}]\n",
		"registerWithTaints: [{key: \"a b\", effect: NoExecute}]\n",
		"registerWithTaints: [{key: a, value: \"b c\", effect: NoExecute}]\n",
		"registerWithTaints: [{key: a, effect: NoExecute, timeAdded: \"2026-01-01T00:00:00Z\"}]\n",
		"shutdownGracePeriod: 10s\nshutdownGracePeriodCriticalPods: 20s\n",
		"shutdownGracePeriod: 20s\nshutdownGracePeriodCriticalPods: 10s\n",
		"shutdownGracePeriodCriticalPods: 500ms\nshutdownGracePeriod: 2s\n",
		"shutdownGracePeriod: 20s\nshutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 3}]\n",
		"shutdownGracePeriodByPodPriority: [{priority: 1, shutdownGracePeriodSeconds: 3}]\n",
		"memorySwap: {swapBehavior: UnlimitedSwap}\n",
		"memorySwap: {swapBehavior: NoSwap}\n",
		"enforceNodeAllocatable: [pods, pods]\n",
		"enforceNodeAllocatable: [none]\n",
		"enforceNodeAllocatable: [none, pods]\n",
		"enforceNodeAllocatable: [system-reserved]\n",
		"enforceNodeAllocatable: [system-reserved]\nsystemReservedCgroup: /system\n",
		"enforceNodeAllocatable: [kube-reserved-compressible]\n",
		"enforceNodeAllocatable: [kube-reserved-compressible]\nkubeReservedCgroup: /kube\n",
		"enforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]\nkubeReservedCgroup: /kube\n",
		"enforceNodeAllocatable: [system-reserved, system-reserved-compressible]\nsystemReservedCgroup: /system\n",
		"cgroupsPerQOS: false\n",
		"cgroupsPerQOS: false\nenforceNodeAllocatable: []\n",
		"cgroupsPerQOS: false\nenforceNodeAllocatable: [none]\n",
		"reservedSystemCPUs: 0-1\n",
		"reservedSystemCPUs: many\n",
		"reservedSystemCPUs: 0-1\nsystemReservedCgroup: /system\n",
		"reservedSystemCPUs: \"0\"\nkubeReservedCgroup: /kube\n",
		"reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}]\n",
		"reservedMemory: [{numaNode: 0, limits: {memory: 0}}]\n",
		"reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]\n",
		"reservedMemory: [{numaNode: 0, limits: {hugepages-2Mi: 4Mi}}, {numaNode: 0, limits: {hugepages-2Mi: 4Mi}}]\n",
		"userNamespaces: {idsPerPod: 65536}\n",
		"userNamespaces: {idsPerPod: 65537}\n",
		"userNamespaces: {idsPerPod: 1024}\n",
		"userNamespaces: {idsPerPod: 4294967296}\n",
		"crashLoopBackOff: {maxContainerRestartPeriod: 1s}\n",
		"crashLoopBackOff: {maxContainerRestartPeriod: 999ms}\n",
		"crashLoopBackOff: {maxContainerRestartPeriod: 301s}\n",
		"logging: {format: json}\n",
		"logging: {format: xml}\n",
		"logging: {verbosity: 4, vmodule: [{filePattern: a, verbosity: 3}]}\n",
		"logging: {format: json, vmodule: [{filePattern: a, verbosity: 3}]}\n",
		"logging: {flushFrequency: -1s}\n",
		"logging: {options: {json: {splitStream: true}}}\n",
		"tracing: {samplingRatePerMillion: 1000001}\n",
		"tracing: {samplingRatePerMillion: 100}\n",
		"tracing: {endpoint: \"localhost:4317\"}\n",
		"tracing: {endpoint: \"http://localhost:4317/x\"}\n",
		"enableSystemLogQuery: true\nenableSystemLogHandler: false\n",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: " +
			"[example.com/a]\n",
		"imagePullCredentialsVerificationPolicy: NeverVerifyAllowlistedImages\npreloadedImagesVerificationAllowlist: " +
			"[\"example.com/a:latest\"]\n",
		"preloadedImagesVerificationAllowlist: [example.com/a]\n",
		"imagePullCredentialsVerificationPolicy: Sometimes\n",
		"singleProcessOOMKill: true\n",
		"featureGates: {InPlacePodVerticalScaling: true}\n",
		"memoryReservationPolicy: TieredReservation\n",
		"memoryReservationPolicy: TieredReservation\nfeatureGates: {MemoryQoS: true}\n",
		"memoryReservationPolicy: TieredReservation\nfeatureGates: {AllAlpha: true, MemoryQoS: false}\n",
		"memoryReservationPolicy: None\n",
		"memoryReservationPolicy: Tiered\nfeatureGates: {MemoryQoS: true}\n",
		"memoryThrottlingFactor: 0\nfeatureGates: {MemoryQoS: true}\n",
		"memoryThrottlingFactor: 1\nfeatureGates: {MemoryQoS: true}\n",
		"qosReserved: {memory: 50%}\nfeatureGates: {QOSReserved: true}\n",
		"qosReserved: {memory: half}\nfeatureGates: {QOSReserved: true}\n",
		"podLogsDir: /var/log/../pods\n",
		"podLogsDir: /var/log/pöds\n",
		"podLogsDir: var/log\n",
		"showHiddenMetricsForVersion: \"1.35\"\n",
		"showHiddenMetricsForVersion: \"1.2\"\n",
		"containerLogMonitorInterval: 2s\n",
		"staticPodURLHeader: {a: [b]}\n",
		"evictionSoft: {memory.available: 1Gi}\nevictionSoftGracePeriod: {memory.available: 1m}\n",
		"maxPods: 1\nmaxPods: 2\n",
		"noSuchField: 1\n",
		"MaxPods: 5\n",
	} {
		compare(t, dir, "", header+text)
	}
}

// compare holds the two verdicts against each other.
func compare(t *testing.T, dir, field, text string) {
	t.Helper()
	want, got := verdicts(t, dir, text)
	said := strings.TrimPrefix(text, header)
	name, _, _ := strings.Cut(said, ":")
	switch {
	case want == nil && got != nil && stricter[name] == "":
		t.Errorf("the kubelet takes %q; kubelot says: %v", said, got)
	case want != nil && got == nil && laxer[name] == "":
		t.Errorf("kubelot takes %q; the kubelet says: %v", said, want)
	case got != nil && field != "" && !strings.Contains(got.Error(), field):
		t.Errorf("%q: the field isn't named: %v", said, got)
	}
}

// Drop-ins have rules of their own: of unknown fields and of repeated ones.
func TestDropIns(t *testing.T) {
	for text, ignored := range map[string]bool{
		"maxPods: 5\n":                   false,
		"noSuchField: 1\n":               true,
		"authentication: {nope: 1}\n":    true,
		"MaxPods: 5\n":                   true,
		"maxPods: 1\nmaxPods: 2\n":       false,
		"logging: {a: 1, a: 2}\n":        false,
		"kind: Pod\n":                    false,
		"kubeReserved: {cpu: 1, cpu: 2}": false,
	} {
		dir := t.TempDir()
		file := filepath.Join(dir, "10.conf")
		whole := header + text
		if strings.HasPrefix(text, "kind") {
			whole = "apiVersion: v1\n" + text
		}
		if err := os.WriteFile(file, []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		loader, err := configfiles.NewFsLoader(&filesystem.DefaultFs{}, file)
		if err != nil {
			t.Fatal(err)
		}
		_, kind, want := loader.LoadIntoJSON()
		if want == nil && kind.Kind != "KubeletConfiguration" {
			want = fmt.Errorf("kind %s", kind.Kind)
		}
		var flags config.Flags
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		flags.Register(set)
		if err := set.Parse([]string{"--config-dir=" + dir, "--hostname-override=n"}); err != nil {
			t.Fatal(err)
		}
		c, got := flags.Load()
		if (want == nil) != (got == nil) {
			t.Errorf("drop-in %q: the kubelet says %v, kubelot %v", text, want, got)
		}
		if got == nil && ignored != (len(c.Warnings) > 0) {
			t.Errorf("drop-in %q: warnings %q", text, c.Warnings)
		}
	}
}

// Each field by itself, with values of its type that are likely to be wrong.
func TestEachField(t *testing.T) {
	dir := t.TempDir()
	k := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	tried := 0
	for i := range k.NumField() {
		name, _, _ := strings.Cut(k.Field(i).Tag.Get("json"), ",")
		for _, value := range candidates(k.Field(i).Type) {
			if name == "" || slices.Contains([]string{"apiVersion", "kind", "failCgroupV1"}, name) {
				continue
			}
			text, err := json.Marshal(value)
			if err != nil {
				t.Fatal(err)
			}
			compare(t, dir, name, header+fmt.Sprintf("%s: %s\n", name, text))
			tried++
		}
	}
	if tried < 300 {
		t.Errorf("just %d files were tried", tried)
	}
}

// candidates are values for a field of that type.
func candidates(t reflect.Type) []any {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == reflect.TypeFor[metav1.Duration]() {
		return []any{"-1s", "0s", "1ms", "1s", "90s", "10h", "soon"}
	}
	switch t.Kind() {
	case reflect.Bool:
		return []any{true, false, "yes"}
	case reflect.Int32, reflect.Int64:
		return []any{-1001, -2, -1, 0, 1, 31, 32, 100, 101, 65535, 65536, 1 << 40, "1"}
	case reflect.Float64:
		return []any{-0.1, 0, 0.5, 1, 1.1}
	case reflect.String:
		return []any{"", "x", "/x", "/x/../y", "x y", "1", "none", 1}
	case reflect.Slice:
		return []any{[]any{}, []any{1}, "x"}
	case reflect.Map:
		return []any{map[string]any{}, map[string]any{"x": 1}, "x"}
	}
	return nil
}
