package clientcert

import (
	"crypto/x509"
	"fmt"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

// kubeconfigUser is what the kubeconfig says of who one is, and the text of its own certificate and key.
func kubeconfigUser(path, current string, now time.Time) (u user, cert, key []byte) {
	loaded, err := clientcmd.LoadFromFile(path)
	if err != nil {
		return user{}, nil, nil
	}
	if context := loaded.Contexts[loaded.CurrentContext]; context != nil && loaded.AuthInfos[context.AuthInfo] != nil {
		u.refers = loaded.AuthInfos[context.AuthInfo].ClientCertificate == current
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return u, nil, nil
	}
	u.embedded = len(config.CertData) > 0
	if err := rest.LoadTLSFiles(config); err != nil {
		return u, nil, nil
	}
	certs, err := certutil.ParseCertsPEM(config.CertData)
	if err != nil {
		// Another kind of credentials: a token, or a program.
		u.usable = len(config.CertData) == 0
		return u, nil, nil
	}
	u.usable = !ended(certs, now)
	if !u.refers {
		u.own = certs[0]
	}
	return u, config.CertData, config.KeyData
}

func ended(certs []*x509.Certificate, now time.Time) bool {
	for _, c := range certs {
		if now.After(c.NotAfter) {
			return true
		}
	}
	return false
}

// writeKubeconfig writes a kubeconfig for the cluster of the bootstrap kubeconfig, with the stored certificate as its
// user. The names in it are the kubelet's.
func writeKubeconfig(path, bootstrap, current string) error {
	from, err := clientcmd.LoadFromFile(bootstrap)
	if err != nil {
		return fmt.Errorf("read the bootstrap kubeconfig: %w", err)
	}
	if err := clientcmd.ResolveLocalPaths(from); err != nil {
		return fmt.Errorf("bootstrap kubeconfig %s: %w", bootstrap, err)
	}
	context := from.Contexts[from.CurrentContext]
	if context == nil || from.Clusters[context.Cluster] == nil {
		return fmt.Errorf("bootstrap kubeconfig %s: its current context %q names no cluster", bootstrap, from.CurrentContext)
	}
	cluster := from.Clusters[context.Cluster].DeepCopy()
	cluster.LocationOfOrigin = ""
	text, err := clientcmd.Write(clientcmdapi.Config{
		Clusters:  map[string]*clientcmdapi.Cluster{"default-cluster": cluster},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"default-auth": {ClientCertificate: current, ClientKey: current}},
		Contexts: map[string]*clientcmdapi.Context{"default-context": {
			Cluster:  "default-cluster",
			AuthInfo: "default-auth", Namespace: "default",
		}},
		CurrentContext: "default-context",
	})
	if err == nil {
		err = writeFile(path, text)
	}
	if err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	return nil
}
