package health

import "testing"

func TestOfRuntime(t *testing.T) {
	const (
		registry = `write server = "http://r:5000" into /etc/containerd/certs.d/r:5000/hosts.toml, or give the registry a ` +
			"certificate"
		logs = "crictl info; then: journalctl -u containerd; systemctl restart containerd"
	)
	for advice, want := range map[string]string{
		registry: "set insecure = true for r:5000 in /etc/containers/registries.conf, or give the registry a certificate",
		logs:     "crictl info; then: journalctl -u crio; systemctl restart crio",
		"put its CA into /etc/containerd/certs.d/r/ca.crt": "put its CA into /etc/containers/certs.d/r/ca.crt",
	} {
		for _, runtime := range []string{"cri-o", "unix:///var/run/crio/crio.sock"} {
			if got := OfRuntime(advice, runtime); got != want {
				t.Errorf("%s: %q", runtime, got)
			}
		}
		for _, runtime := range []string{"containerd", "unix:///run/containerd/containerd.sock", ""} {
			if got := OfRuntime(advice, runtime); got != advice {
				t.Errorf("%s: %q", runtime, got)
			}
		}
	}
}
