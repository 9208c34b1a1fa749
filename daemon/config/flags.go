package config

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

// Flags are the command-line flags that make up a Config: those of the kubelet that kubeadm and distributions use, and
// a few of kubelot's own.
type Flags struct {
	ConfigFile          string
	ConfigDir           string
	Kubeconfig          string
	BootstrapKubeconfig string
	HostnameOverride    string
	NodeIP              string
	RootDir             string
	CertDir             string
	CloudProvider       string
	RuntimeCgroups      string
	NodeLabels          string
	RunDir              string
	BusSocket           string
	DeadContainers      DeadContainers
	CredentialProviders CredentialProviders

	fields  map[string]*fieldFlag
	ignored map[string]*string
	set     *pflag.FlagSet
}

// ignoredFlags are kubelet flags that are accepted with a warning: the flag, and why it has no effect.
var ignoredFlags = map[string]string{
	"application-metrics-count-limit":          embedsNothing,
	"boot-id-file":                             embedsNothing,
	"container-hints":                          embedsNothing,
	"containerd":                               embedsNothing,
	"containerd-namespace":                     embedsNothing,
	"enable-load-reader":                       embedsNothing,
	"event-storage-age-limit":                  embedsNothing,
	"event-storage-event-limit":                embedsNothing,
	"global-housekeeping-interval":             embedsNothing,
	"housekeeping-interval":                    embedsNothing,
	"log-cadvisor-usage":                       embedsNothing,
	"machine-id-file":                          embedsNothing,
	"storage-driver-buffer-duration":           embedsNothing,
	"storage-driver-db":                        embedsNothing,
	"storage-driver-host":                      embedsNothing,
	"storage-driver-password":                  embedsNothing,
	"storage-driver-secure":                    embedsNothing,
	"storage-driver-table":                     embedsNothing,
	"storage-driver-user":                      embedsNothing,
	"container-runtime":                        "the runtime is always the CRI one",
	"exit-on-lock-contention":                  "kubelot has no lock file",
	"experimental-allocatable-ignore-eviction": "eviction thresholds always count",
	"experimental-mounter-path":                "CSI drivers took its place",
	"lock-file":                                "systemd runs one instance of each daemon",
	"log-flush-frequency":                      "log lines are written at once",
	"pod-infra-container-image":                "the runtime's own configuration names the sandbox image",
	"log-json-info-buffer-size":                "log lines are written at once, to one stream",
	"log-json-split-stream":                    "log lines are written at once, to one stream",
	"log-text-info-buffer-size":                "log lines are written at once, to one stream",
	"log-text-split-stream":                    "log lines are written at once, to one stream",
	"vmodule":                                  "log levels are per daemon (--v)",
}

// ignoredSwitches are those of them that stand alone. The others take the next word as their value.
var ignoredSwitches = []string{
	"enable-load-reader", "exit-on-lock-contention", "experimental-allocatable-ignore-eviction", "log-cadvisor-usage",
	"log-json-split-stream", "log-text-split-stream", "storage-driver-secure",
}

// embedsNothing is why cAdvisor's flags, which the kubelet has, do nothing.
const embedsNothing = "it is cAdvisor's, which kubelot doesn't contain"

// Register adds the flags to fs.
func (f *Flags) Register(fs *pflag.FlagSet) {
	f.set = fs
	fs.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(FlagName(name))
	})
	fs.StringVar(&f.ConfigFile, "config", "", "file with a KubeletConfiguration (kubelet.config.k8s.io/v1beta1)")
	fs.StringVar(&f.ConfigDir, "config-dir", "", "directory with *.conf drop-ins, merged in lexical order over --config")
	fs.StringVar(&f.Kubeconfig, "kubeconfig", "",
		"credentials for the API server; without them the node runs static pods only")
	fs.StringVar(&f.BootstrapKubeconfig, "bootstrap-kubeconfig", "",
		"credentials with which --kubeconfig is created if that file doesn't exist (TLS bootstrap)")
	fs.StringVar(&f.HostnameOverride, "hostname-override", "", "the node's name, instead of the host name")
	fs.StringVar(&f.NodeIP, "node-ip", "", "the node's IP address, or two of different families separated by a comma")
	fs.StringVar(&f.RootDir, "root-dir", RootDir, "directory for pods, plugins and checkpoints")
	fs.StringVar(&f.CertDir, "cert-dir", certDir, "directory for certificates; --root-dir doesn't change it")
	fs.StringVar(&f.CloudProvider, "cloud-provider", "", `"external" or nothing`)
	fs.StringVar(&f.RuntimeCgroups, "runtime-cgroups", "",
		"the container runtime's cgroup, whose usage is that of the node's system container runtime")
	fs.StringVar(&f.NodeLabels, "node-labels", "", "labels for the registration of the node, as key=value,...")
	fs.StringVar(&f.RunDir, "run-dir", RunDir, "directory for kubelot's sockets and keys")
	fs.StringVar(&f.BusSocket, "bus-socket", "", "the bus's unix socket (default <run-dir>/bus.sock)")
	fs.IntVar(&f.DeadContainers.PerContainer, "maximum-dead-containers-per-container", 1,
		"dead instances to keep of each container; negative for any number")
	fs.IntVar(&f.DeadContainers.Total, "maximum-dead-containers", -1,
		"dead containers to keep on the node; negative for any number")
	fs.DurationVar(&f.DeadContainers.MinAge, "minimum-container-ttl-duration", 0,
		"minimum age of a dead container before it is removed")
	fs.StringVar(&f.CredentialProviders.Config, "image-credential-provider-config", "",
		"file with a CredentialProviderConfig, or directory with *.json, *.yaml and *.yml files of it")
	fs.StringVar(&f.CredentialProviders.BinDir, "image-credential-provider-bin-dir", "",
		"directory with the programs that --image-credential-provider-config names")
	f.fields = addFieldFlags(fs)
	f.ignored = make(map[string]*string, len(ignoredFlags))
	for _, name := range slices.Sorted(maps.Keys(ignoredFlags)) {
		f.ignored[name] = fs.String(name, "", "no effect: "+ignoredFlags[name])
		if slices.Contains(ignoredSwitches, name) {
			fs.Lookup(name).NoOptDefVal = "true"
		}
		fs.Lookup(name).Hidden = true
	}
}

// Args are the flags that were given, in a form that another daemon accepts. kubelot up passes them on.
func (f *Flags) Args() []string {
	var args []string
	own := pflag.NewFlagSet("", pflag.ContinueOnError)
	(&Flags{}).Register(own)
	f.set.Visit(func(flag *pflag.Flag) {
		if own.Lookup(flag.Name) == nil {
			return
		}
		texts := []string{flag.Value.String()}
		if field := f.fields[flag.Name]; field != nil {
			texts = field.texts
		}
		for _, text := range texts {
			args = append(args, "--"+flag.Name+"="+text)
		}
	})
	return args
}

// FlagName is a flag's name with dashes. On a command line of the kubelet it may have underscores in their place.
func FlagName(name string) string { return strings.ReplaceAll(name, "_", "-") }

// layer has the fields of KubeletConfiguration that the command line sets.
func (f *Flags) layer() (layer, error) {
	l := layer{source: "the command line", fields: map[string]any{}}
	for _, name := range slices.Sorted(maps.Keys(f.fields)) {
		if !f.set.Changed(name) {
			continue
		}
		path, value := f.fields[name].path, f.fields[name].value
		put(l.fields, path, value)
		// The kubelet adds a flag to what the files say for feature gates only. All fields that are maps are at the top.
		if _, object := value.(map[string]any); object && path != "featureGates" {
			l.whole = append(l.whole, path)
		}
	}
	dir, err := os.Getwd()
	if err != nil {
		return layer{}, fmt.Errorf("find the directory that relative paths on the command line belong to: %w", err)
	}
	anchorPaths(l.fields, dir)
	return l, nil
}

// warnings names the given flags that have no effect.
func (f *Flags) warnings() []string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(f.ignored)) {
		if f.set.Changed(name) {
			out = append(out, fmt.Sprintf("flag --%s has no effect: %s", name, ignoredFlags[name]))
		}
	}
	return out
}

// absolute makes a path absolute and leaves an empty one empty.
func absolute(path string) (string, error) {
	if path == "" {
		return "", nil
	}
	return filepath.Abs(path)
}
