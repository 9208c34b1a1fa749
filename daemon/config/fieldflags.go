package config

import (
	"encoding/csv"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubeletv1beta1 "k8s.io/kubelet/config/v1beta1"
)

// fieldFlags are the kubelet's flags that stand for a field of KubeletConfiguration: flag name, then the
// field's dotted path. A given flag wins over every file.
var fieldFlags = [][2]string{
	{"address", "address"},
	{"allowed-unsafe-sysctls", "allowedUnsafeSysctls"},
	{"anonymous-auth", "authentication.anonymous.enabled"},
	{"authentication-token-webhook", "authentication.webhook.enabled"},
	{"authentication-token-webhook-cache-ttl", "authentication.webhook.cacheTTL"},
	{"authorization-mode", "authorization.mode"},
	{"authorization-webhook-cache-authorized-ttl", "authorization.webhook.cacheAuthorizedTTL"},
	{"authorization-webhook-cache-unauthorized-ttl", "authorization.webhook.cacheUnauthorizedTTL"},
	{"cgroup-driver", "cgroupDriver"},
	{"cgroup-root", "cgroupRoot"},
	{"cgroups-per-qos", "cgroupsPerQOS"},
	{"client-ca-file", "authentication.x509.clientCAFile"},
	{"cluster-dns", "clusterDNS"},
	{"cluster-domain", "clusterDomain"},
	{"container-log-max-files", "containerLogMaxFiles"},
	{"container-log-max-size", "containerLogMaxSize"},
	{"container-runtime-endpoint", "containerRuntimeEndpoint"},
	{"cpu-cfs-quota", "cpuCFSQuota"},
	{"cpu-cfs-quota-period", "cpuCFSQuotaPeriod"},
	{"cpu-manager-policy", "cpuManagerPolicy"},
	{"cpu-manager-policy-options", "cpuManagerPolicyOptions"},
	{"cpu-manager-reconcile-period", "cpuManagerReconcilePeriod"},
	{"enable-controller-attach-detach", "enableControllerAttachDetach"},
	{"enable-debugging-handlers", "enableDebuggingHandlers"},
	{"enable-server", "enableServer"},
	{"enforce-node-allocatable", "enforceNodeAllocatable"},
	{"event-burst", "eventBurst"},
	{"event-qps", "eventRecordQPS"},
	{"eviction-hard", "evictionHard"},
	{"eviction-max-pod-grace-period", "evictionMaxPodGracePeriod"},
	{"eviction-minimum-reclaim", "evictionMinimumReclaim"},
	{"eviction-pressure-transition-period", "evictionPressureTransitionPeriod"},
	{"eviction-soft", "evictionSoft"},
	{"eviction-soft-grace-period", "evictionSoftGracePeriod"},
	{"fail-cgroupv1", "failCgroupV1"},
	{"fail-swap-on", "failSwapOn"},
	{"feature-gates", "featureGates"},
	{"file-check-frequency", "fileCheckFrequency"},
	{"hairpin-mode", "hairpinMode"},
	{"healthz-bind-address", "healthzBindAddress"},
	{"healthz-port", "healthzPort"},
	{"http-check-frequency", "httpCheckFrequency"},
	{"image-gc-high-threshold", "imageGCHighThresholdPercent"},
	{"image-gc-low-threshold", "imageGCLowThresholdPercent"},
	{"image-service-endpoint", "imageServiceEndpoint"},
	{"contention-profiling", "enableContentionProfiling"},
	{"kernel-memcg-notification", "kernelMemcgNotification"},
	{"kube-api-burst", "kubeAPIBurst"},
	{"kube-api-content-type", "contentType"},
	{"kube-api-qps", "kubeAPIQPS"},
	{"kube-reserved", "kubeReserved"},
	{"kube-reserved-cgroup", "kubeReservedCgroup"},
	{"kubelet-cgroups", "kubeletCgroups"},
	{"local-storage-capacity-isolation", "localStorageCapacityIsolation"},
	{"logging-format", "logging.format"},
	{"make-iptables-util-chains", "makeIPTablesUtilChains"},
	{"manifest-url", "staticPodURL"},
	{"manifest-url-header", "staticPodURLHeader"},
	{"max-open-files", "maxOpenFiles"},
	{"max-pods", "maxPods"},
	{"memory-manager-policy", "memoryManagerPolicy"},
	{"minimum-image-ttl-duration", "imageMinimumGCAge"},
	{"node-status-max-images", "nodeStatusMaxImages"},
	{"node-status-update-frequency", "nodeStatusUpdateFrequency"},
	{"oom-score-adj", "oomScoreAdj"},
	{"pod-cidr", "podCIDR"},
	{"pod-logs-dir", "podLogsDir"},
	{"pod-manifest-path", "staticPodPath"},
	{"pod-max-pids", "podPidsLimit"},
	{"pods-per-core", "podsPerCore"},
	{"port", "port"},
	{"protect-kernel-defaults", "protectKernelDefaults"},
	{"provider-id", "providerID"},
	{"qos-reserved", "qosReserved"},
	{"read-only-port", "readOnlyPort"},
	{"register-node", "registerNode"},
	{"register-with-taints", "registerWithTaints"},
	{"registry-burst", "registryBurst"},
	{"registry-qps", "registryPullQPS"},
	{"reserved-cpus", "reservedSystemCPUs"},
	{"reserved-memory", "reservedMemory"},
	{"resolv-conf", "resolvConf"},
	{"rotate-certificates", "rotateCertificates"},
	{"rotate-server-certificates", "serverTLSBootstrap"},
	{"runonce", "runOnce"},
	{"runtime-request-timeout", "runtimeRequestTimeout"},
	{"seccomp-default", "seccompDefault"},
	{"serialize-image-pulls", "serializeImagePulls"},
	{"streaming-connection-idle-timeout", "streamingConnectionIdleTimeout"},
	{"sync-frequency", "syncFrequency"},
	{"system-cgroups", "systemCgroups"},
	{"system-reserved", "systemReserved"},
	{"system-reserved-cgroup", "systemReservedCgroup"},
	{"tls-cert-file", "tlsCertFile"},
	{"tls-cipher-suites", "tlsCipherSuites"},
	{"tls-min-version", "tlsMinVersion"},
	{"tls-private-key-file", "tlsPrivateKeyFile"},
	{"topology-manager-policy", "topologyManagerPolicy"},
	{"topology-manager-policy-options", "topologyManagerPolicyOptions"},
	{"topology-manager-scope", "topologyManagerScope"},
	{"v", "logging.verbosity"},
	{"volume-plugin-dir", "volumePluginDir"},
	{"volume-stats-agg-period", "volumeStatsAggPeriod"},
}

// fieldFlag is a flag's value: parsed by the Go type of the field it stands for, kept as the JSON
// value that a configuration file would hold.
type fieldFlag struct {
	path  string
	parse func(text string, before any) (any, error)
	kind  string
	texts []string // as given, one per use
	value any
}

func (f *fieldFlag) String() string { return strings.Join(f.texts, ",") }
func (f *fieldFlag) Type() string   { return f.kind }

// Set parses one use of the flag; a map or list flag that is repeated adds to what it has.
func (f *fieldFlag) Set(text string) error {
	value, err := f.parse(text, f.value)
	if err != nil {
		return err
	}
	f.texts, f.value = append(f.texts, text), value
	return nil
}

// addFieldFlags registers the flags of the table and returns them by flag name.
func addFieldFlags(fs *pflag.FlagSet) map[string]*fieldFlag {
	flags := make(map[string]*fieldFlag, len(fieldFlags))
	for _, row := range fieldFlags {
		name, path := row[0], row[1]
		f := newFieldFlag(path)
		flags[name] = f
		shorthand := ""
		if name == "v" {
			shorthand = "v"
		}
		flag := fs.VarPF(f, name, shorthand, "the configuration field "+path)
		if f.kind == "bool" {
			flag.NoOptDefVal = "true"
		}
	}
	return flags
}

func newFieldFlag(path string) *fieldFlag {
	f := &fieldFlag{path: path}
	switch t := fieldType(path); {
	case t == reflect.TypeFor[metav1.Duration]():
		f.kind, f.parse = "duration", parseDuration
	case t == reflect.TypeFor[[]corev1.Taint]():
		f.kind, f.parse = "taints", parseTaints
	case t == reflect.TypeFor[[]kubeletv1beta1.MemoryReservation]():
		f.kind, f.parse = "node:type=size,...;...", parseMemory
	case t == reflect.TypeFor[map[string][]string]():
		f.kind, f.parse = "header:value,...", parseHeaders
	case t == reflect.TypeFor[map[string]bool]():
		f.kind, f.parse = "key=bool,...", parseBools
	case t.Kind() == reflect.Map:
		separators := "="
		if strings.HasPrefix(path, "evictionHard") || path == "evictionSoft" {
			separators = "<"
		}
		f.kind, f.parse = "key"+separators+"value,...", pairsParser(separators)
	case t.Kind() == reflect.Slice:
		f.kind, f.parse = "strings", parseList
	case t.Kind() == reflect.Bool:
		f.kind, f.parse = "bool", parseBool
	case t.Kind() == reflect.String:
		f.kind, f.parse = "string", parseText
	default:
		f.kind, f.parse = "int", parseNumber
	}
	return f
}

// fieldType is the Go type of the field at a dotted JSON path, without its pointer.
func fieldType(path string) reflect.Type {
	t := reflect.TypeFor[kubeletv1beta1.KubeletConfiguration]()
	for name := range strings.SplitSeq(path, ".") {
		t = memberType(t, name)
	}
	return t
}

// memberType is the type of a struct's member by its JSON name; for a name the struct doesn't have it is the
// empty struct, which the table's test turns into a failure.
func memberType(t reflect.Type, name string) reflect.Type {
	if t.Kind() != reflect.Struct {
		return reflect.TypeFor[struct{}]()
	}
	for i := range t.NumField() {
		member := t.Field(i)
		if tag, _, _ := strings.Cut(member.Tag.Get("json"), ","); tag == name {
			if member.Type.Kind() == reflect.Pointer {
				return member.Type.Elem()
			}
			return member.Type
		}
	}
	return reflect.TypeFor[struct{}]()
}

func parseText(text string, _ any) (any, error) { return text, nil }

func parseBool(text string, _ any) (any, error) {
	value, err := strconv.ParseBool(text)
	if err != nil {
		return nil, fmt.Errorf("want true or false, got %q", text)
	}
	return value, nil
}

func parseNumber(text string, _ any) (any, error) {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("want a whole number, got %q", text)
	}
	return value, nil
}

func parseDuration(text string, _ any) (any, error) {
	if _, err := time.ParseDuration(text); err != nil {
		return nil, fmt.Errorf("want a duration such as 10s or 5m, got %q", text)
	}
	return text, nil
}

func parseList(text string, before any) (any, error) {
	list, _ := before.([]any)
	list = append([]any{}, list...)
	if text == "" {
		return list, nil
	}
	items, err := csv.NewReader(strings.NewReader(text)).Read()
	if err != nil {
		return nil, fmt.Errorf("want a comma-separated list, got %q", text)
	}
	for _, item := range items {
		list = append(list, strings.TrimSpace(item))
	}
	return list, nil
}

func pairsParser(separator string) func(string, any) (any, error) {
	return func(text string, before any) (any, error) {
		pairs := cloneObject(before)
		for item := range strings.SplitSeq(text, ",") {
			if strings.TrimSpace(item) == "" {
				continue
			}
			key, value, ok := strings.Cut(item, separator)
			if key = strings.TrimSpace(key); !ok || key == "" {
				return nil, fmt.Errorf("want key%svalue pairs separated by commas, got %q", separator, item)
			}
			pairs[key] = strings.TrimSpace(value)
		}
		return pairs, nil
	}
}

func parseBools(text string, before any) (any, error) {
	parsed, err := pairsParser("=")(text, nil)
	if err != nil {
		return nil, err
	}
	bools := cloneObject(before)
	for key, value := range cloneObject(parsed) {
		if bools[key], err = strconv.ParseBool(fmt.Sprint(value)); err != nil {
			return nil, fmt.Errorf("%s: want true or false, got %q", key, value)
		}
	}
	return bools, nil
}

func parseHeaders(text string, before any) (any, error) {
	headers := cloneObject(before)
	for item := range strings.SplitSeq(text, ",") {
		name, value, ok := strings.Cut(item, ":")
		if name = strings.TrimSpace(name); !ok || name == "" {
			return nil, fmt.Errorf("want name:value pairs separated by commas, got %q", item)
		}
		values, _ := headers[name].([]any)
		headers[name] = append(append([]any{}, values...), strings.TrimSpace(value))
	}
	return headers, nil
}

func parseTaints(text string, before any) (any, error) {
	list, _ := before.([]any)
	list = append([]any{}, list...)
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		cut := strings.LastIndexByte(item, ':')
		if cut <= 0 {
			return nil, fmt.Errorf("want taints as key=value:effect or key:effect, got %q", item)
		}
		key, value, _ := strings.Cut(item[:cut], "=")
		list = append(list, map[string]any{"key": key, "value": value, "effect": item[cut+1:]})
	}
	return list, nil
}

// parseMemory reads what is reserved on NUMA nodes, as in 0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=512Mi.
func parseMemory(text string, before any) (any, error) {
	list, _ := before.([]any)
	list = append([]any{}, list...)
	for item := range strings.SplitSeq(text, ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		node, sizes, found := strings.Cut(item, ":")
		number, err := strconv.ParseInt(strings.TrimSpace(node), 10, 32)
		if err != nil || !found {
			return nil, fmt.Errorf("want reserved memory as node:type=size,..., got %q", item)
		}
		limits, err := pairsParser("=")(sizes, nil)
		if err != nil {
			return nil, err
		}
		list = append(list, map[string]any{"numaNode": number, "limits": limits})
	}
	return list, nil
}

func cloneObject(value any) map[string]any {
	clone := map[string]any{}
	object, _ := value.(map[string]any)
	for k, v := range object {
		clone[k] = v
	}
	return clone
}
