package controlplane

import (
	"fmt"
	"os"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// writeKubeconfig issues a client certificate and writes a kubeconfig that has
// everything in it, so that it can be copied away.
func (c *ControlPlane) writeKubeconfig(path, user string, groups ...string) error {
	s := subject{file: "client-" + fileName(user), name: user, groups: groups}
	if err := c.ca.issue(s); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.ca.path("ca.crt"))
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	cert, err := os.ReadFile(c.ca.path(s.file + ".crt"))
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	key, err := os.ReadFile(c.ca.path(s.file + ".key"))
	if err != nil {
		return fmt.Errorf("kubeconfig of %s: %w", user, err)
	}
	return writeConfig(path, &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: ca},
		&clientcmdapi.AuthInfo{ClientCertificateData: cert, ClientKeyData: key})
}

func writeConfig(path string, cluster *clientcmdapi.Cluster, user *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["testbed"] = cluster
	config.AuthInfos["user"] = user
	config.Contexts["testbed"] = &clientcmdapi.Context{Cluster: "testbed", AuthInfo: "user"}
	config.CurrentContext = "testbed"
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		return fmt.Errorf("write kubeconfig %s: %w", path, err)
	}
	return nil
}

// NodeKubeconfig writes a kubeconfig of the given node's own user and returns its path.
func (c *ControlPlane) NodeKubeconfig(node string) (string, error) {
	path := c.bed.Path("node-" + fileName(node) + ".kubeconfig")
	return path, c.writeKubeconfig(path, "system:node:"+node, "system:nodes")
}

// BootstrapKubeconfig writes a kubeconfig with a bootstrap token, for a node
// that has no certificate yet, and returns its path.
func (c *ControlPlane) BootstrapKubeconfig() (string, error) {
	path := c.bed.Path("bootstrap.kubeconfig")
	ca, err := os.ReadFile(c.CAFile())
	if err != nil {
		return "", fmt.Errorf("bootstrap kubeconfig: %w", err)
	}
	return path, writeConfig(path, &clientcmdapi.Cluster{Server: c.URL, CertificateAuthorityData: ca},
		&clientcmdapi.AuthInfo{Token: bootstrapTokenID + "." + bootstrapTokenSecret})
}

// RESTConfig is the administrator's client configuration, without client-side throttling.
func (c *ControlPlane) RESTConfig() (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.AdminKubeconfig())
	if err != nil {
		return nil, fmt.Errorf("load %s: %w", c.AdminKubeconfig(), err)
	}
	config.QPS = -1
	return config, nil
}

// fileName turns a user or node name into part of a file name.
func fileName(name string) string {
	out := []byte(name)
	for i, c := range out {
		if c == ':' || c == '/' {
			out[i] = '-'
		}
	}
	return string(out)
}
