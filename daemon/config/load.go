package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// clientCertificateName is the link to the client certificate in use; kubeadm and others know it from the kubelet.
const clientCertificateName = "kubelet-client-current.pem"

// Load resolves the configuration: defaults, then --config, then the drop-ins of --config-dir in
// lexical order, then the flags. Register must have been called and the flags parsed.
func (f *Flags) Load() (*Config, error) {
	m, err := f.mergeLayers()
	if err != nil {
		return nil, err
	}
	kubelet, err := m.decode()
	if err != nil {
		return nil, err
	}
	setDefaults(&kubelet)
	kubelet.APIVersion, kubelet.Kind = configAPIVersion, configKind
	if err := validate(&kubelet, m.where); err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	c := &Config{
		Kubelet:        kubelet,
		ProviderID:     kubelet.ProviderID,
		CloudProvider:  f.CloudProvider,
		RuntimeCgroups: f.RuntimeCgroups,
		RegisterTaints: kubelet.RegisterWithTaints,
		PodLogsDir:     kubelet.PodLogsDir,

		ContainerLogsDir: containerLogsDir,
		DeadContainers:   f.DeadContainers,
	}
	if err := errors.Join(f.resolveNode(c), f.resolvePaths(c), f.resolveEndpoints(c)); err != nil {
		return nil, fmt.Errorf("invalid configuration: %w", err)
	}
	if kubelet.RotateCertificates && !c.Standalone() {
		c.ClientCertificate = filepath.Join(c.CertDir, clientCertificateName)
	}
	c.RegisterNode = *kubelet.RegisterNode && !c.Standalone()
	c.Warnings = slices.Concat(m.ignored, f.warnings(), c.Warnings, resolveClusterDNS(&c.Kubelet, m.where),
		fieldWarnings(m, &kubelet))
	return c, nil
}

func (f *Flags) mergeLayers() (merged, error) {
	base := layer{fields: map[string]any{}}
	if f.ConfigFile != "" {
		var err error
		if base, err = readLayer(f.ConfigFile); err != nil {
			return merged{}, err
		}
	}
	preset(base.fields)
	layers := []layer{base}
	if f.ConfigDir != "" {
		dropIns, err := readDropIns(f.ConfigDir)
		if err != nil {
			return merged{}, err
		}
		layers = append(layers, dropIns...)
	}
	flags, err := f.layer()
	if err != nil {
		return merged{}, err
	}
	return merge(append(layers, flags)), nil
}

func (f *Flags) resolveNode(c *Config) error {
	name := strings.TrimSpace(f.HostnameOverride)
	if name == "" {
		host, err := os.Hostname()
		if err != nil {
			return fmt.Errorf("find the host name: %w: name the node with --hostname-override", err)
		}
		name = host
	}
	c.NodeName = strings.ToLower(strings.TrimSpace(name))
	if problems := validation.IsDNS1123Subdomain(c.NodeName); len(problems) > 0 {
		return fmt.Errorf("node name %q: %s: name the node with --hostname-override", c.NodeName,
			strings.Join(problems, "; "))
	}
	if f.CloudProvider != "" && f.CloudProvider != "external" {
		return fmt.Errorf("--cloud-provider %q: only \"external\" and nothing are possible", f.CloudProvider)
	}
	var err error
	if c.NodeLabels, err = f.labels(); err != nil {
		return err
	}
	c.NodeIPs, c.Warnings, err = parseNodeIPs(f.NodeIP)
	return err
}

func (f *Flags) resolvePaths(c *Config) error {
	for _, p := range []struct {
		into *string
		path string
	}{
		{&c.RootDir, f.RootDir},
		{&c.RunDir, f.RunDir},
		{&c.BusSocket, f.BusSocket},
		{&c.CertDir, f.CertDir},
		{&c.Kubeconfig, f.Kubeconfig},
		{&c.BootstrapKubeconfig, f.BootstrapKubeconfig},
		{&c.CredentialProviders.Config, f.CredentialProviders.Config},
		{&c.CredentialProviders.BinDir, f.CredentialProviders.BinDir},
	} {
		path, err := absolute(p.path)
		if err != nil {
			return fmt.Errorf("path %q: %w", p.path, err)
		}
		*p.into = path
	}
	switch {
	case c.RootDir == "":
		return errors.New("--root-dir must not be empty")
	case c.RunDir == "":
		return errors.New("--run-dir must not be empty")
	case c.Kubeconfig == "" && c.BootstrapKubeconfig != "":
		return errors.New("--bootstrap-kubeconfig needs --kubeconfig: the path where the obtained credentials are written")
	case (c.CredentialProviders.Config == "") != (c.CredentialProviders.BinDir == ""):
		return errors.New("--image-credential-provider-config and --image-credential-provider-bin-dir go together: " +
			"set both or none")
	}
	or(&c.BusSocket, filepath.Join(c.RunDir, "bus.sock"))
	or(&c.CertDir, certDir)
	return nil
}

func (f *Flags) resolveEndpoints(c *Config) error {
	c.RuntimeEndpoint = c.Kubelet.ContainerRuntimeEndpoint
	c.ImageEndpoint = c.Kubelet.ImageServiceEndpoint
	or(&c.ImageEndpoint, c.RuntimeEndpoint)
	for _, e := range []struct {
		field    string
		endpoint *string
	}{
		{"containerRuntimeEndpoint", &c.RuntimeEndpoint},
		{"imageServiceEndpoint", &c.ImageEndpoint},
	} {
		if filepath.IsAbs(*e.endpoint) {
			*e.endpoint = "unix://" + *e.endpoint
		}
		path, ok := strings.CutPrefix(*e.endpoint, "unix://")
		if !ok || !filepath.IsAbs(path) {
			return fmt.Errorf("%s %q: want a unix socket such as unix:///run/containerd/containerd.sock", e.field, *e.endpoint)
		}
	}
	return nil
}
