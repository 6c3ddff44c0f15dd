//! Network access of commands in a sandbox.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use brigade_core::network::HostList;

/// Network access of commands in a sandbox.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkAccess {
    /// None.
    #[default]
    Off,
    /// These hosts, over HTTP and TLS, through a proxy. It needs namespaces; without them the network is off.
    Hosts(HostList),
    /// The network of the host.
    All,
}

impl NetworkAccess {
    /// Hosts that can be reached through the proxy.
    pub(super) fn hosts(&self) -> HostList {
        match self {
            NetworkAccess::Hosts(hosts) => hosts.clone(),
            NetworkAccess::Off | NetworkAccess::All => HostList::default(),
        }
    }
}

/// Variables that name a proxy, or the hosts that are reached without it.
const VARIABLES: [&str; 4] = ["ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"];

/// Replaces the user's proxy settings with those for the proxy of the sandbox, whose address is added when it exists.
///
/// The loopback addresses are those of the sandbox, except those that an entry names: they are the host's.
pub(super) fn set_proxy_variables(variables: &mut Vec<(String, String)>, hosts: &HostList) {
    variables.retain(|(name, _)| !VARIABLES.iter().any(|variable| name.eq_ignore_ascii_case(variable)));
    let mut direct = vec!["localhost".to_owned()];
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), IpAddr::from(Ipv6Addr::LOCALHOST)];
    direct.extend(loopback.iter().filter(|address| !hosts.names_ip(**address)).map(IpAddr::to_string));
    let direct = direct.join(",");
    variables.push(("NO_PROXY".to_owned(), direct.clone()));
    variables.push(("no_proxy".to_owned(), direct));
    // Node.js uses the variables only if this one is set.
    variables.push(("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned()));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proxy_of_the_user_is_replaced() {
        let variables = |hosts: &[&str]| {
            let given = [("PATH", "/bin"), ("https_proxy", "http://corp:3128"), ("No_Proxy", "corp")];
            let mut variables: Vec<_> = given.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
            let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
            set_proxy_variables(&mut variables, &hosts);
            variables.into_iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>()
        };
        let all = "localhost,127.0.0.1,::1";
        assert_eq!(
            variables(&["example.com"]),
            ["PATH=/bin", &format!("NO_PROXY={all}"), &format!("no_proxy={all}"), "NODE_USE_ENV_PROXY=1"]
        );
        assert!(variables(&["127.0.0.1:3000"]).contains(&"NO_PROXY=localhost,::1".to_owned()));
        assert!(variables(&["[::1]:3000"]).contains(&"NO_PROXY=localhost,127.0.0.1".to_owned()));
    }
}
