package health

import (
	"regexp"
	"strings"
)

// ofCRIO are the places of CRI-O that stand for containerd's.
var ofCRIO = strings.NewReplacer(
	"journalctl -u containerd", "journalctl -u crio",
	"systemctl status containerd", "systemctl status crio",
	"systemctl restart containerd", "systemctl restart crio",
	"systemctl show containerd", "systemctl show crio",
	"/etc/containerd/certs.d/", "/etc/containers/certs.d/",
	"/etc/containerd/config.toml", "/etc/crio/crio.conf.d",
	"/var/lib/containerd", "/var/lib/containers",
	"ctr -n k8s.io images import FILE", "podman load -i FILE",
)

// OfRuntime names what the node's container runtime has in an advice that names containerd's unit, files and tools. The
// runtime is given by its name, or by its endpoint where it doesn't answer.
func OfRuntime(advice, runtime string) string {
	if !strings.Contains(strings.ReplaceAll(runtime, "-", ""), "crio") {
		return advice
	}
	plain := regexp.MustCompile(`write server = "http://(\S+)" into [^\s,]+`)
	advice = plain.ReplaceAllString(advice, "set insecure = true for $1 in /etc/containers/registries.conf")
	return ofCRIO.Replace(advice)
}
