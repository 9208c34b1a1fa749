// Package logquery answers queries of the machine's logs (KEP-2258): those of services from the journal, or from their
// files below /var/log where a service doesn't log to it.
//
// # Guarantees
//
// Nothing of a query reaches a shell: journalctl gets each value as part of one argument of its own, after it was
// checked. No file outside of the directory of logs is read, whatever links there are in it. A query ends with its
// request, and after 30 s.
//
// Source: KEP-2258; the query's parameters, their bounds and the answers' words are the kubelet's.
package logquery
