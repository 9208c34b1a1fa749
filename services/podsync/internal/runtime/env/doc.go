// Package env computes the environment of a container.
//
// # Reads
//
// The container's env and envFrom, the pod, and through Sources the ConfigMaps, Secrets and Services
// they name; for fileKeyRef a file in one of the pod's volumes.
//
// # Guarantees
//
// The result is sorted by name, has every name once, and depends on nothing but the input. Names and keys
// in errors are the user's own; values never occur in them.
//
// Source: Kubernetes API reference, Container.env, Container.envFrom, EnvVarSource, PodSpec.enableServiceLinks;
// KEP-559 for expansion in volume subpaths; KEP-3721 for fileKeyRef; KEP-4369 for relaxed variable names.
package env
