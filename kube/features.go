package kube

// DeclaredFeatures are those features of a node, of the list in k8s.io/component-helpers/nodedeclaredfeatures, that
// kubelot has (KEP-5328), in order of their names. The node declares them in its status, and admits no pod that needs
// another one. The scheduler and the API server go by the node's status: pods that need another feature aren't
// scheduled to it, and such changes of its pods are refused.
func DeclaredFeatures() []string { return []string{"ExtendWebSocketsToKubelet"} }
