package lease

import (
	corev1 "k8s.io/api/core/v1"

	"kubelot.dev/bus/topic"
	"kubelot.dev/daemon"
	"kubelot.dev/kube"
	"kubelot.dev/services/lease/internal/clientcert"
)

// identityPorts are the daemon's ends of what obtains and renews the client certificate.
func identityPorts(env daemon.Env, health daemon.HealthReporter) clientcert.Ports {
	told := false
	return clientcert.Ports{
		Dial: func(kubeconfig, certificate string) (clientcert.Requests, func(), error) {
			client, err := kube.NewClient(kubeconfig, clientOptions(env, certificate))
			if err != nil {
				return nil, nil, err
			}
			requests, err := client.SigningRequests()
			if err != nil {
				client.Close()
				return nil, nil, err
			}
			return requests, client.Close, nil
		},
		Waiting: func(text string) {
			switch {
			case text != "":
				health.Set(topic.Degraded, text)
			case told:
				health.Set(topic.Healthy, "")
			}
			told = text != ""
		},
		Failed: func(err error) {
			recordNode(env, corev1.EventTypeWarning, "FailedClientCertificate",
				"Can't obtain the node's client certificate: "+err.Error())
		},
		Log: env.Log, Metrics: env.Metrics,
	}
}
