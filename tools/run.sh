#!/usr/bin/env bash
# Runs kubelot on this machine with a containerd of its own, in .run, next to whatever else runs here.
#   run.sh standalone   static pods from examples/, no control plane
#   run.sh cluster      the same with a control plane, and a kubeconfig for kubectl
# On a terminal it stays until Ctrl-C. Without one it ends when the pods run: exit code 0, or 1 if they don't.
. "$(dirname "$0")/lib.sh"
mode=${1:?standalone or cluster}
bed=$root/.run/$mode
log=$root/.run/$mode.testbed.log
patience=180

need_root run
interactive=false
if [ -t 1 ]; then interactive=true; fi

testbed=
kubelot=
finish() {
  local code=$?
  trap - EXIT INT TERM
  if [ -n "$kubelot" ]; then
    kill -INT "$kubelot" 2>/dev/null || true
    wait "$kubelot" || true
  fi
  if [ -n "$testbed" ]; then
    say "stopping the test bed"
    kill -TERM "$testbed" 2>/dev/null || true
    wait "$testbed" || code=1
  fi
  [ -z "${run_dir:-}" ] || rm -rf "$run_dir"
  rm -f "$root/.run/admin.kubeconfig"
  exit $code
}
trap finish EXIT
trap 'exit 130' INT TERM

# start_testbed starts containerd (and the control plane) in a session of its own, which Ctrl-C doesn't reach.
start_testbed() {
  local subcommand=containerd
  if [ "$mode" = cluster ]; then subcommand=cluster; fi
  mkdir -p "$root/.run"
  setsid "$bin/testbed" $subcommand --dir "$bed" >"$log" 2>&1 &
  testbed=$!
  until grep -q '^Ready\.' "$log"; do
    if ! kill -0 "$testbed" 2>/dev/null; then
      cat "$log"
      testbed=
      return 1
    fi
    sleep 0.2
  done
}

# configure writes the node's configuration: the kubelet's own format.
configure() {
  . "$bed/env"
  run_dir=/run$KUBELOT_CGROUP_ROOT
  mkdir -p "$run_dir"
  cat >"$root/.run/$mode.kubelet.yaml" <<YAML
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
staticPodPath: $root/examples
podLogsDir: $bed/podlogs
containerRuntimeEndpoint: unix://$CONTAINERD_ADDRESS
cgroupDriver: cgroupfs
cgroupRoot: $KUBELOT_CGROUP_ROOT
failCgroupV1: false
failSwapOn: false
clusterDomain: cluster.local
clusterDNS: ["10.96.0.10"]
YAML
  args=(up --config "$root/.run/$mode.kubelet.yaml" --hostname-override testbed --node-ip "$KUBELOT_NODE_IP"
    --root-dir "$bed/kubelet" --cert-dir "$bed/kubelet/pki" --run-dir "$run_dir" --down)
  if [ "$mode" = cluster ]; then
    echo "authentication: {x509: {clientCAFile: $KUBELOT_CLUSTER_CA}}" >>"$root/.run/$mode.kubelet.yaml"
    args+=(--kubeconfig "$KUBELOT_NODE_KUBECONFIG")
    cp "$KUBECONFIG" "$root/.run/admin.kubeconfig"
  else
    # Without an API server there is nobody who could be let in.
    echo "enableServer: false" >>"$root/.run/$mode.kubelet.yaml"
    args+=(--without api)
  fi
}

explain() {
  cat <<TEXT
== In another terminal:
     export PATH=$bin:\$PATH
     kubelot tap  --run-dir $run_dir --since 5m
     kubelot pods --run-dir $run_dir
TEXT
  if [ "$mode" = cluster ]; then
    cat <<TEXT
     export KUBECONFIG=$root/.run/admin.kubeconfig
     kubectl get nodes,pods -A
     kubectl apply -f $root/deploy/examples
     kubectl logs deployment/hello; kubectl exec -it deployment/hello -- sh
TEXT
  fi
  say "Ctrl-C stops kubelot, removes the pods and ends the test bed."
}

# verify_cluster lets a Deployment run on the node, as a user would.
verify_cluster() {
  kubectl wait --for=condition=Ready node/testbed --timeout=${patience}s &&
    kubectl apply -f "$root/deploy/examples" &&
    kubectl rollout status deployment/hello --timeout=${patience}s &&
    kubectl exec deployment/hello -- hostname &&
    kubectl logs deployment/hello --tail=3 &&
    kubectl get nodes,pods -A -o wide
}

cd "$root"
if [ "$mode" = standalone ]; then programs --standalone; else programs; fi
step "start the test bed ($mode)" start_testbed
configure
if $interactive; then
  explain
  # Ctrl-C is how this ends; kubelot gets it too, and has stopped when the trap runs.
  trap 'exit 0' INT
  kubelot "${args[@]}" --show-pods
elif [ "$mode" = standalone ]; then
  say "no terminal: kubelot runs until all pods do (at most $patience s), then everything is removed again"
  kubelot "${args[@]}" --until-ready ${patience}s
else
  say "no terminal: a Deployment must run on the node (at most $patience s), then everything is removed again"
  kubelot "${args[@]}" &
  kubelot=$!
  # The node registers itself before kubectl can wait for it.
  until kubectl get node testbed >/dev/null 2>&1; do
    if ! kill -0 $kubelot 2>/dev/null || [ $SECONDS -gt 600 ]; then
      say "the node never appeared"
      exit 1
    fi
    sleep 0.5
  done
  step "a Deployment on the node" verify_cluster
fi
